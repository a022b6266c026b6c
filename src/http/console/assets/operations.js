// All operations: filters, and the search for one.

import { get, post } from "./api.js";
import { fill, h, seen } from "./dom.js";
import { REASONS, STATES, entity, list, operationLink, state, table, time } from "./show.js";
import { t } from "./words.js";

export async function page({ query, note, go }) {
  const found = h("div", { id: "found", "aria-live": "polite" });
  const shown = list({
    query, note,
    csv: "/v1/admin/operations.csv",
    filters: [
      { name: "status", label: t("state"), options: STATES.map((name) => [name, t(`state.${name}`)]) },
      { name: "reason", label: t("reason"), options: [...REASONS, "rejected", "rejected_by_operator"].map((reason) => [reason, t(`reason.${reason}`)]) },
      { name: "source", label: t("source") },
      { name: "destination", label: t("destination") },
      { name: "received_after", label: t("from_time"), type: "datetime-local" },
      { name: "received_before", label: t("to_time"), type: "datetime-local" },
    ],
    load: (filter, cursor) => get("/v1/admin/operations", { ...filter, received_after: utc(filter.received_after), received_before: utc(filter.received_before), cursor }),
    render: operationsTable,
  });
  const search = h("form", {
    class: "search", role: "search",
    onsubmit: async (event) => {
      event.preventDefault();
      const text = new FormData(search).get("search").trim();
      if (text === "") return void fill(found);
      try {
        const items = await seek(text);
        if (items.length === 1) return void go(`#/operations/${items[0].operation_id}`);
        fill(found, h("h2", {}, t("search.found")), operationsTable(items));
      } catch (error) {
        fill(found, h("p", { class: "fault" }, error.message));
      }
    },
  }, h("label", {}, t("search.label"), h("input", { name: "search", type: "search", autocomplete: "off", spellcheck: "false", placeholder: t("search.hint") })),
  h("button", { type: "submit", class: "primary" }, t("search")));
  await shown.begin();
  return {
    title: t("operations"),
    content: [search, found, shown.content],
    again: shown.again,
    keys: { "/": () => search.elements.search.focus() },
  };
}

/** By id, key or entity; and, where the text may be one, by e-mail or phone, which never stand in an address. */
async function seek(text) {
  const asked = [get("/v1/admin/operations", { q: text })];
  const contact = text.includes("@") ? { email: text } : (text.match(/\d/g) ?? []).length >= 5 && /^[\d\s()+.\-–]+$/.test(text) ? { phone: text } : null;
  // What is no phone after all was asked for by the other way.
  if (contact) asked.push(post("/v1/admin/operations/search", contact).catch((error) => (error.status === 400 ? { items: [] } : Promise.reject(error))));
  const pages = await Promise.all(asked);
  const byId = new Map(pages.flatMap((page) => page.items).map((item) => [item.operation_id, item]));
  return [...byId.values()];
}

export function operationsTable(items) {
  return table(t("operations"), [
    { title: t("received"), cell: (item) => time(item.received_at) },
    { title: t("operation"), cell: (item) => operationLink(item.operation_id), class: "id" },
    { title: t("state"), cell: (item) => state(item.status, item.reason) },
    { title: t("source"), cell: (item) => [seen(item.source), item.source_key ? h("small", {}, " ", seen(item.source_key)) : null] },
    { title: t("in_crm"), cell: (item) => [seen(item.crm), " ", entity(item.crm_id)] },
  ], items);
}

/** A local time of a form as the API reads it. */
function utc(local) {
  return local ? new Date(local).toISOString() : undefined;
}
