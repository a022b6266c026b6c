// One operation: from this page alone it can be told which event came, whether it had a stable key, how often work was started, what
// went to the CRM, what was answered, where the id is stored, and what caused the next attempt.

import { get } from "./api.js";
import { fill, h, seen } from "./dom.js";
import { conflict, leadTable, panel } from "./case.js";
import { content as rawRequest, did } from "./logs.js";
import { queue } from "./reviews.js";
import { entity, operationLink, pairs, span, state, time } from "./show.js";
import { t } from "./words.js";

export async function page({ part: id, may, tell, faultOf, go }) {
  const place = h("div", {});
  const moved = h("div", { role: "status" });
  let operation = null;
  let decision = null;

  async function load() {
    operation = await get(`/v1/admin/operations/${encodeURIComponent(id)}`);
    await draw();
  }
  async function draw() {
    fill(moved);
    decision = may("operator") ? panel(operation, { faultOf, decided }) : null;
    const compared = decision || operation.conflicts_with ? await conflict(operation, decision?.forms ?? {}).catch(() => null) : null;
    fill(place, summary(operation), decision?.content, may("operator") ? compared : strip(compared), h("div", { class: "columns" },
      h("section", {}, h("h2", {}, t("lead"), operation.lead_edited ? h("small", {}, " ", t("lead.edited")) : null), leadTable(operation.lead)),
      facts(operation)), timeline(operation), related(operation));
  }
  function decided(after, action) {
    if (!after) return void load();
    const next = nextOf(id);
    tell(t(`decided.${action}`), " ", operationLink(id), " – ", t(`state.${after.status}`));
    if (next) go(`#/operations/${next}`);
    else load();
  }
  await load();
  return {
    title: t("operation"),
    content: [nav(id), moved, place],
    again: async () => {
      const now = await get(`/v1/admin/operations/${encodeURIComponent(id)}`, {}, true);
      if (now.version === operation.version && now.attempt_log.length === operation.attempt_log.length && now.deliveries.length === operation.deliveries.length) return;
      // Who is deciding is told, and keeps what was typed.
      if (place.querySelector(".decision form, #candidates")) {
        fill(moved, h("p", { class: "warning" }, t("moved"), " ", h("button", { type: "button", onclick: load }, t("load_again"))));
      } else {
        operation = now;
        await draw();
      }
    },
    keys: {
      n: () => nextOf(id) && go(`#/operations/${nextOf(id)}`),
      b: () => go(back()),
      ...Object.fromEntries(["l", "c", "s", "r"].map((key) => [key, () => decision?.keys[key]()])),
    },
  };
}

function strip(section) {
  section?.querySelectorAll("button").forEach((button) => button.remove());
  return section;
}

const back = () => (queue.query ? `#/reviews?${queue.query}` : "#/reviews");

function nextOf(id) {
  const at = queue.ids.indexOf(id);
  return at >= 0 ? queue.ids[at + 1] : undefined;
}

function nav(id) {
  const at = queue.ids.indexOf(id);
  if (at < 0) return null;
  return h("p", { class: "queue" }, h("a", { href: back() }, t("reviews"), " ", h("kbd", {}, "b")), " · ", t("queue.place", { at: at + 1, of: queue.ids.length }),
    nextOf(id) ? [" · ", h("a", { href: `#/operations/${nextOf(id)}` }, t("queue.next"), " ", h("kbd", {}, "n"))] : null);
}

function summary(operation) {
  return h("p", { class: "summary" }, state(operation.status, operation.reason), " ", seen(operation.crm), " ", entity(operation.crm_id, operation.link),
    operation.next_at ? [" · ", t("next_at"), " ", time(operation.next_at)] : null,
    operation.lease ? [" · ", t("held"), " ", seen(operation.lease.owner), " ", t("until"), " ", time(operation.lease.until)] : null);
}

function facts(operation) {
  return h("section", {}, h("h2", {}, t("facts")), pairs([
    [t("operation"), h("code", {}, operation.operation_id)],
    [t("source"), seen(operation.source)],
    [t("key"), operation.source_key === null ? t("key.none") : [h("code", {}, seen(operation.source_key)), " ", h("small", {}, t(`key.${operation.key_origin}`))]],
    [t("crm_key"), h("code", {}, operation.crm_key)],
    [t("hash"), h("code", { class: "hash" }, operation.payload_hash)],
    [t("hash_rule"), h("code", {}, seen(operation.hash_rule))],
    [t("received"), time(operation.received_at)],
    [t("updated"), time(operation.updated_at)],
    [t("attempts"), operation.attempts],
    [t("version"), operation.version],
    operation.payload_erased_at ? [t("erased"), time(operation.payload_erased_at)] : null,
  ]));
}

/** Everything that happened, in order, with durations. */
function timeline(operation) {
  const events = [
    ...operation.deliveries.map((delivery) => ({
      at: delivery.received_at, kind: "delivery", title: [t("event.delivery"), " – ", t(`verdict.${delivery.verdict}`)],
      more: [delivery.note ? h("p", {}, seen(delivery.note)) : null, rawRequest(delivery)],
    })),
    ...operation.attempt_log.map((attempt) => ({
      at: attempt.started_at, kind: attempt.call, end: attempt.ended_at,
      title: [t(`event.${attempt.call}`, { number: attempt.number }), " – ", attempt.class ? t.has(`class.${attempt.class}`) ? t(`class.${attempt.class}`) : attempt.class : t("event.open"),
        attempt.status ? ` (HTTP ${attempt.status})` : ""],
      more: [attempt.decision ? h("p", {}, "→ ", seen(attempt.decision)) : null, attempt.licence ? h("p", { class: "hint" }, t("licence"), ": ", t.has(`licence.${attempt.licence}`) ? t(`licence.${attempt.licence}`) : attempt.licence) : null,
        attempt.request || attempt.excerpt ? h("details", {}, h("summary", {}, t("request_answer")), h("h4", {}, t("request")), h("pre", { tabindex: "0" }, seen(attempt.request ?? t("erased"))),
          h("h4", {}, t("answer")), h("pre", { tabindex: "0" }, seen(attempt.excerpt ?? t("erased")))) : null],
    })),
    ...operation.transitions.map((change) => ({
      at: change.at, kind: "transition", version: change.version,
      title: [change.from ? [t(`state.${change.from}`), " → "] : null, t(`state.${change.to}`), change.reason ? ` (${t(`reason.${change.reason}`)})` : "", " · ", change.event],
    })),
    ...operation.audit.map((entry) => ({
      at: entry.at, kind: "person", title: [seen(entry.actor), " – ", did(entry)], more: entry.note ? h("p", {}, "“", seen(entry.note), "”") : null,
    })),
  ];
  // Of one moment: what came, then what a person did, then what was sent, then what followed.
  const order = ["delivery", "person", "create", "lookup", "transition"];
  events.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : order.indexOf(a.kind) - order.indexOf(b.kind) || (a.version ?? 0) - (b.version ?? 0)));
  let before = null;
  return h("section", {}, h("h2", {}, t("timeline")), h("ol", { class: "timeline", id: "timeline" }, events.map((event) => {
    const since = before === null ? null : new Date(event.at) - new Date(before);
    before = event.at;
    return h("li", { class: event.kind }, h("p", {}, time(event.at), since ? h("small", {}, ` +${span(since)}`) : null, " ", h("strong", {}, event.title),
      event.end ? h("small", {}, ` ${t("took")} ${span(new Date(event.end) - new Date(event.at))}`) : null), event.more);
  })));
}

function related(operation) {
  if (operation.related.length === 0) return null;
  return h("section", {}, h("h2", {}, t("related")), h("p", { class: "hint" }, t("related.what")), h("ul", {}, operation.related.map((id) => h("li", {}, operationLink(id)))));
}
