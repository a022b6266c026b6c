// The review queue: what only a person can decide, the oldest first.

import { get, post } from "./api.js";
import { fill, h, seen } from "./dom.js";
import { REASONS, age, list, number, operationLink, table } from "./show.js";
import { t } from "./words.js";

/** Decided in one call. */
const AT_ONCE = 25;

/** The queue as it was left, for "next" on a case's page. */
export const queue = { ids: [], query: "" };

export async function page({ query, note, may, tell, go }) {
  const chosen = new Map();
  const bulk = h("section", { class: "bulk", "aria-label": t("bulk") });
  const count = h("p", { class: "hint for-keyboards" });
  let at = -1;
  const shown = list({
    query, note,
    csv: "/v1/admin/operations.csv",
    filters: [
      { name: "reason", label: t("reason"), options: REASONS.map((reason) => [reason, t(`reason.${reason}`)]) },
      { name: "source", label: t("source") },
      { name: "destination", label: t("destination") },
    ],
    load: (filter, cursor) => get("/v1/admin/operations", { ...filter, status: "needs_review", order: "oldest", limit: 50, cursor }, cursor === null && at >= 0),
    render: (items) => {
      queue.ids = items.map((item) => item.operation_id);
      for (const id of chosen.keys()) if (!queue.ids.includes(id)) chosen.delete(id);
      fill(count, items.length === 0 ? "" : t("reviews.keys"));
      offer();
      return table(t("reviews"), columns(), items, (item) => ({ "data-id": item.operation_id }));
    },
  });

  const columns = () => [
    may("operator") ? {
      title: t("choose"),
      cell: (item) => h("input", {
        type: "checkbox", "aria-label": `${t("choose")} ${item.operation_id}`, checked: chosen.has(item.operation_id),
        onchange: (event) => choose(item, event.target.checked),
      }),
    } : null,
    { title: t("reason"), cell: (item) => operationLink(item.operation_id, t(`reason.${item.reason}`)) },
    { title: t("what_happened"), cell: (item) => (item.last_error ? seen(item.last_error) : t(`happened.${item.reason}`)) },
    { title: t("source"), cell: (item) => [seen(item.source), item.source_key ? h("small", {}, " ", seen(item.source_key)) : null] },
    { title: t("destination"), cell: (item) => seen(item.crm) },
    { title: t("age"), cell: (item) => age(item.received_at) },
  ].filter((column) => column);

  function choose(item, on) {
    if (on) chosen.set(item.operation_id, item.version);
    else chosen.delete(item.operation_id);
    offer();
  }

  function offer() {
    if (bulk.querySelector("[data-preview]")) return;
    // What came of the last decision stays until the next choice.
    if (chosen.size === 0) return void (bulk.querySelector("#bulk-done") ?? fill(bulk));
    fill(bulk, h("p", {}, t("bulk.chosen", { count: number(chosen.size) })), h("div", { class: "buttons" },
      h("button", { type: "button", "data-action": "bulk-reject", onclick: () => preview("reject") }, t("action.reject")),
      h("button", { type: "button", "data-action": "bulk-retry", onclick: () => preview("retry") }, t("action.retry"))));
  }

  /** Says what will happen before anything does. */
  async function preview(action) {
    const items = [...chosen].map(([id, version]) => ({ id, version }));
    const text = h("input", { name: "note", maxlength: 2000, required: true });
    let foreseen;
    try {
      foreseen = await post("/v1/admin/operations/resolve", { action, note: "preview", items, preview: true });
    } catch (error) {
      return void tell(error.message);
    }
    const refused = foreseen.items.filter((item) => item.status !== 200);
    const sure = h("input", { type: "checkbox", name: "sure", required: true });
    fill(bulk, h("form", {
      "data-preview": action,
      onsubmit: (event) => {
        event.preventDefault();
        carryOut(action, items.filter(({ id }) => !refused.some((item) => item.operation_id === id)), text.value.trim());
      },
    }, h("h2", {}, t(`bulk.${action}.title`, { count: number(foreseen.done) })), h("p", {}, t(`bulk.${action}.what`)),
    refused.length > 0 ? h("details", { open: true }, h("summary", {}, t("bulk.left", { count: number(refused.length) })),
      h("ul", {}, refused.map((item) => h("li", {}, operationLink(item.operation_id), ": ", seen(item.problem))))) : null,
    action === "retry" ? h("label", { class: "statement" }, sure, " ", t("statement.bulk")) : null,
    h("label", {}, t("note.why"), text),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary", disabled: foreseen.done === 0 }, t("carry_out")),
      h("button", { type: "button", onclick: () => { fill(bulk); offer(); } }, t("cancel")))));
    text.focus();
  }

  /** In parts, so that progress is seen and what was decided stays decided. */
  async function carryOut(action, items, words) {
    const bar = h("progress", { max: items.length, "aria-label": t("bulk") });
    bar.value = 0;
    fill(bulk, h("p", { "data-preview": "running" }, t("bulk.running"), " ", bar));
    let done = 0;
    const left = [];
    try {
      for (let from = 0; from < items.length; from += AT_ONCE) {
        const part = await post("/v1/admin/operations/resolve", { action, note: words, items: items.slice(from, from + AT_ONCE) });
        done += part.done;
        left.push(...part.items.filter((item) => item.status !== 200));
        bar.value = Math.min(from + AT_ONCE, items.length);
      }
    } catch (error) {
      left.push({ problem: error.message });
    }
    chosen.clear();
    fill(bulk, h("p", { id: "bulk-done" }, t("bulk.done", { count: number(done) }), left.length > 0 ? [" ", t("bulk.left", { count: number(left.length) })] : null),
      left.length > 0 ? h("ul", {}, left.map((item) => h("li", {}, operationLink(item.operation_id), ": ", seen(item.problem)))) : null);
    tell(t("bulk.done", { count: number(done) }));
    await shown.begin();
  }

  function move(by) {
    const rows = [...document.querySelectorAll("tr[data-id]")];
    if (rows.length === 0) return;
    at = Math.min(rows.length - 1, Math.max(0, at + by));
    rows[at].querySelector("a").focus();
    rows[at].scrollIntoView({ block: "nearest" });
  }

  await shown.begin();
  queue.query = new URLSearchParams(query).toString();
  return {
    title: t("reviews"),
    content: [count, bulk, shown.content],
    again: shown.again,
    keys: {
      j: () => move(1),
      k: () => move(-1),
      Enter: () => queue.ids[Math.max(0, at)] && go(`#/operations/${queue.ids[Math.max(0, at)]}`),
      x: () => document.querySelectorAll("tr[data-id]")[at]?.querySelector("input[type=checkbox]")?.click(),
    },
  };
}
