// How values are shown: times, ages, states, tables, lists with filters.

import { queryOf } from "./api.js";
import { fill, h, outward, seen } from "./dom.js";
import { language, t } from "./words.js";

export const STATES = ["received", "in_progress", "completed", "failed_terminal", "needs_review"];
export const REASONS = ["attempts_exhausted", "uncertain_outcome", "ambiguous_match", "duplicate_entity", "payload_conflict", "unreadable",
  "late_after_retention", "likely_copy"];

/** A time in the viewer's zone; UTC on hover. */
export function time(text) {
  if (!text) return h("span", { class: "none" }, "–");
  const at = new Date(text);
  const today = new Date().toDateString() === at.toDateString();
  const shape = today ? { hour: "2-digit", minute: "2-digit", second: "2-digit" }
    : { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };
  return h("time", { datetime: text, title: text.replace("T", " ").replace("Z", " UTC") }, new Intl.DateTimeFormat(language(), shape).format(at));
}

/** How long ago. */
export function age(text) {
  return text ? h("span", { title: text.replace("T", " ").replace("Z", " UTC") }, t("ago", { time: span(Math.max(1000, Math.round((Date.now() - new Date(text)) / 1000) * 1000)) })) : "–";
}

/** A duration in milliseconds, in its largest unit. */
export function span(milliseconds) {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ${t("unit.ms")}`;
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${t(`unit.${unit}`)}`;
  }
  return `${Number(seconds.toFixed(1))} ${t("unit.s")}`;
}

/** A number in the viewer's language. */
export function number(value) {
  return new Intl.NumberFormat(language()).format(value);
}

/** A state, by colour, sign and word. */
export function state(name, reason) {
  return h("span", { class: `state ${name}` }, t(`state.${name}`), reason ? h("small", {}, " ", t(`reason.${reason}`)) : null);
}

/** The entity in the CRM. */
export function entity(crmId, link) {
  if (!crmId) return h("span", { class: "none" }, "–");
  return link ? outward(link, seen(crmId), h("span", { class: "unseen" }, ` ${t("in_crm")}`)) : seen(crmId);
}

/** A link to an operation's page. */
export function operationLink(id, words) {
  return id ? h("a", { href: `#/operations/${id}`, class: "id" }, words ?? id) : h("span", { class: "none" }, "–");
}

/** A table; a column is `{title, cell, wide}`. On a narrow screen each row becomes a card with the titles beside the values. */
export function table(caption, columns, items, row = () => ({})) {
  if (items.length === 0) return h("p", { class: "empty" }, t("nothing"));
  return h("table", {}, h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col" }, column.title)))),
    h("tbody", {}, items.map((item) => h("tr", row(item),
      columns.map((column) => h("td", { "data-title": column.title, class: column.class }, column.cell(item)))))));
}

/** Pairs of a word and its value. */
export function pairs(entries) {
  return h("dl", {}, entries.filter((entry) => entry).map(([word, value]) => [h("dt", {}, word), h("dd", {}, value ?? h("span", { class: "none" }, "–"))]));
}

/** A list with filters, pages and an export. `load(query, cursor)` gives a page, `render(items)` shows all that were loaded. */
export function list({ filters, query, load, render, csv, note }) {
  const place = h("div", { class: "list" });
  const more = h("button", { type: "button", class: "more", hidden: true }, t("more"));
  const download = csv ? h("a", { class: "button", download: true }, t("export")) : null;
  const fault = h("p", { class: "fault", role: "alert" });
  let chosen = { ...query };
  let items = [];
  let cursor = null;
  const form = h("form", {
    class: "filters", role: "search",
    onsubmit: (event) => event.preventDefault(),
    onchange: () => {
      chosen = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
      note(queryOf(chosen));
      begin().catch(() => {});
    },
  }, filters.map((filter) => h("label", {}, filter.label, filter.options
    ? h("select", { name: filter.name }, h("option", { value: "" }, t("all")),
      filter.options.map(([value, label]) => h("option", { value, selected: chosen[filter.name] === value }, label)))
    : h("input", { name: filter.name, type: filter.type ?? "text", value: chosen[filter.name] ?? "", placeholder: filter.hint, spellcheck: "false" }))),
  download);

  async function begin() {
    const page = await fetched(null);
    items = page.items;
    drawn();
  }
  async function fetched(from) {
    fill(fault);
    try {
      let page = await load(chosen, from);
      // A page without items that names the next: none were found so far.
      while (!page.items.length && page.next_cursor) page = await load(chosen, page.next_cursor);
      cursor = page.next_cursor;
      return page;
    } catch (error) {
      fill(fault, error.message || t("fault.network"));
      throw error;
    }
  }
  function drawn() {
    const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    fill(place, render(items));
    if (focused) [...place.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
    more.hidden = !cursor;
    if (download) download.href = csv + queryOf(chosen);
  }
  more.addEventListener("click", async () => {
    const page = await fetched(cursor);
    items = [...items, ...page.items];
    drawn();
  });
  return {
    content: [form, fault, place, more],
    begin,
    /** Looks again, unless more than one page is open. */
    again: async () => {
      if (items.length > 60) return;
      const page = await load(chosen, null);
      if (!page.items.length && page.next_cursor) return;
      if (JSON.stringify(page.items) !== JSON.stringify(items)) {
        ({ items, next_cursor: cursor } = page);
        drawn();
      }
    },
    items: () => items,
    chosen: () => chosen,
  };
}
