// What needs a person now, first; then how everything is.

import { get, post } from "./api.js";
import { fill, h, seen, svg } from "./dom.js";
import { STATES, age, number, table, time } from "./show.js";
import { t } from "./words.js";

export async function page({ may, tell, faultOf }) {
  const content = h("div", {});
  let last = "";
  async function draw(quiet) {
    const overview = await get("/v1/admin/overview", {}, quiet);
    const now = JSON.stringify({ ...overview, at: null });
    const asking = content.querySelector("dialog[open], form") !== null;
    if (now === last || asking) return;
    last = now;
    fill(content, needs(overview), states(overview), h("div", { class: "columns" }, chart(overview, "sources"), chart(overview, "states")),
      destinations(overview, { may, tell, faultOf, again: () => draw(false) }));
  }
  await draw(false);
  return { title: t("overview"), content, again: () => draw(true) };
}

/** The sentence that the eye meets first. */
function needs({ reviews, destinations, incidents }) {
  const open = Object.entries(reviews).filter(([, count]) => count > 0);
  const held = destinations.filter(({ state }) => state === "suspended");
  const other = incidents.filter(({ key }) => !/^(destination_suspended|reviews?_)/.test(key));
  if (open.length === 0 && held.length === 0 && other.length === 0) return h("section", { class: "needs calm", id: "needs" }, h("p", {}, t("needs.nothing")));
  return h("section", { class: "needs", id: "needs", "aria-labelledby": "needs-title" }, h("h2", { id: "needs-title" }, t("needs.title")), h("ul", {},
    held.map((destination) => h("li", { class: "urgent" }, t("needs.suspended"), " ", seen(destination.name), ": ", seen(destination.reason ?? ""), " (",
      t("needs.waiting", { count: number(destination.waiting) }), ")")),
    open.map(([reason, count]) => h("li", {}, h("a", { href: `#/reviews?reason=${reason}` }, h("strong", {}, number(count)), " ", t(`reason.${reason}`)))),
    other.map((incident) => h("li", { class: "urgent" }, seen(incident.text), " ", age(incident.opened_at)))));
}

function states({ states, oldest, deliveries }) {
  const tile = (name, count, note) => h("a", { class: `tile ${name}`, href: `#/operations?status=${name}` }, h("strong", {}, number(count)),
    h("span", {}, t(`state.${name}`)), note ? h("small", {}, note) : null);
  const repeats = deliveries.replay + deliveries.replay_unverified;
  return h("section", { class: "tiles", "aria-label": t("states") },
    STATES.map((name) => tile(name, states[name], oldest[name] ? [t("oldest"), " ", age(oldest[name])] : null)),
    h("div", { class: "tile" }, h("strong", {}, number(repeats)), h("span", {}, t("absorbed")), h("small", {}, t("last_day"))),
    h("a", { class: "tile", href: "#/deliveries?verdict=rejected" }, h("strong", {}, number(deliveries.rejected)), h("span", {}, t("refused")), h("small", {}, t("last_day"))));
}

const WIDTH = 720, HEIGHT = 140, LEFT = 34;

/** Bars of a day, stacked by source or by outcome; the same as a table for those who cannot see them. */
function chart({ hours }, by) {
  const names = by === "states" ? STATES.filter((name) => hours.some((hour) => hour.states[name]))
    : [...new Set(hours.flatMap((hour) => Object.keys(hour.sources)))].sort();
  const total = (hour) => Object.values(hour[by]).reduce((sum, count) => sum + count, 0);
  const most = Math.max(1, ...hours.map(total));
  const step = (WIDTH - LEFT) / hours.length;
  const colour = (name, at) => (by === "states" ? `bar ${name}` : `bar series-${at % 8}`);
  const label = (hour) => new Date(hour.hour).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const bars = hours.map((hour, at) => {
    let y = HEIGHT;
    return names.map((name, series) => {
      const height = ((hour[by][name] ?? 0) / most) * (HEIGHT - 10);
      y -= height;
      return height === 0 ? [] : svg("rect", { x: LEFT + at * step + 1, y, width: step - 2, height, class: colour(name, series) },
        svg("title", {}, `${label(hour)} · ${by === "states" ? t(`state.${name}`) : name}: ${number(hour[by][name])}`));
    });
  });
  const axis = [svg("text", { x: 0, y: 12, class: "axis" }, number(most)), svg("text", { x: 0, y: HEIGHT, class: "axis" }, "0"),
    hours.map((hour, at) => (at % 4 === 0 ? svg("text", { x: LEFT + at * step, y: HEIGHT + 16, class: "axis" }, label(hour)) : []))];
  const title = t(by === "states" ? "chart.states" : "chart.sources");
  const word = (name) => (by === "states" ? t(`state.${name}`) : seen(name));
  return h("section", { class: "chart" }, h("h2", {}, title),
    names.length === 0 ? h("p", { class: "empty" }, t("nothing")) : [
      svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + 20}`, role: "img", "aria-label": title }, bars, axis),
      h("ul", { class: "legend" }, names.map((name, at) => h("li", {}, h("span", { class: `key ${colour(name, at)}` }), word(name)))),
      h("details", {}, h("summary", {}, t("chart.table")), table(title,
        [{ title: t("hour"), cell: (hour) => time(hour.hour) }, ...names.map((name) => ({ title: word(name).textContent ?? word(name), cell: (hour) => number(hour[by][name] ?? 0) }))],
        hours.filter(total)))]);
}

function destinations({ destinations }, { may, tell, faultOf, again }) {
  const all = destinations.reduce((sum, { operations }) => sum + operations, 0);
  const act = async (button, name, action, note) => {
    button.disabled = true;
    try {
      await post(`/v1/admin/destinations/${encodeURIComponent(name)}/${action}`, note ? { note } : {});
      tell(t(`destination.${action}.done`), " ", seen(name));
    } catch (error) {
      tell(faultOf(error));
    }
    await again();
  };
  const button = ({ name, state }) => {
    if (!may("operator")) return null;
    if (state === "suspended") {
      return h("button", { type: "button", "data-action": "resume", onclick: (event) => act(event.target, name, "resume") }, t("destination.resume"));
    }
    const note = h("input", { name: "note", maxlength: 2000, "aria-label": t("note"), placeholder: t("note") });
    return h("details", { class: "ask" }, h("summary", { "data-action": "suspend" }, t("destination.suspend")),
      h("p", {}, t("destination.suspend.what")), note,
      h("button", { type: "button", "data-action": "suspend-now", onclick: (event) => act(event.target, name, "suspend", note.value) }, t("destination.suspend")));
  };
  const columns = [
    { title: t("destination"), cell: (d) => [seen(d.name), h("small", {}, " ", d.kind)] },
    { title: t("state"), cell: (d) => [h("span", { class: `state ${d.state}` }, t(`destination.${d.state}`)), d.reason ? h("p", {}, seen(d.reason)) : null, h("small", {}, t("since"), " ", time(d.since))] },
    { title: t("waiting"), cell: (d) => number(d.waiting) },
    { title: t("state.in_progress"), cell: (d) => number(d.in_progress) },
    { title: t("share"), cell: (d) => (all > 0 ? `${Math.round((100 * d.operations) / all)} % (${number(d.operations)})` : "–") },
    { title: t("last_success"), cell: (d) => (d.last_success_at ? age(d.last_success_at) : "–") },
    { title: t("action"), cell: button },
  ];
  return h("section", { id: "destinations" }, h("h2", {}, t("destinations")), table(t("destinations"), columns, destinations, (d) => ({ "data-name": d.name })));
}
