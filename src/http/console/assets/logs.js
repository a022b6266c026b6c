// What was refused, and what people did.

import { get } from "./api.js";
import { h, seen } from "./dom.js";
import { list, operationLink, pairs, table, time } from "./show.js";
import { t } from "./words.js";

export async function deliveries({ query, note }) {
  const shown = list({
    query, note,
    csv: "/v1/admin/deliveries.csv",
    filters: [
      { name: "verdict", label: t("verdict"), options: ["rejected", "test", "spam", "ignored"].map((name) => [name, t(`verdict.${name}`)]) },
      { name: "source", label: t("source") },
    ],
    load: (filter, cursor) => get("/v1/admin/deliveries", { ...filter, cursor }),
    render: (items) => table(t("deliveries"), [
      { title: t("received"), cell: (item) => time(item.received_at) },
      { title: t("source"), cell: (item) => seen(item.source) },
      { title: t("verdict"), cell: (item) => t(`verdict.${item.verdict}`) },
      { title: t("why"), cell: (item) => (item.note ? seen(item.note) : "–") },
      { title: t("content"), cell: content },
    ], items),
  });
  await shown.begin();
  return { title: t("deliveries"), content: [h("p", { class: "hint" }, t("deliveries.what")), shown.content], again: shown.again };
}

/** The raw request, folded. */
export function content(delivery) {
  return h("details", {}, h("summary", {}, delivery.method, " ", delivery.body_size === null ? t("erased") : `${delivery.body_size} B`),
    pairs([[t("delivery"), delivery.id], ["SHA-256", h("code", {}, delivery.body_sha256)], ...delivery.headers.map(([name, value]) => [seen(name), seen(value)])]),
    delivery.body === null ? h("p", {}, t("erased")) : h("pre", { tabindex: "0" }, seen(delivery.body)),
    delivery.body_encoding === "base64" ? h("p", { class: "hint" }, t("base64")) : null,
    delivery.body_truncated ? h("p", { class: "hint" }, t("truncated")) : null);
}

export async function audit({ query, note }) {
  const shown = list({
    query, note,
    csv: "/v1/admin/audit.csv",
    filters: [{ name: "actor", label: t("actor") }, { name: "action", label: t("action") }],
    load: (filter, cursor) => get("/v1/admin/audit", { ...filter, cursor }),
    render: (items) => table(t("audit"), [
      { title: t("when"), cell: (item) => time(item.at) },
      { title: t("actor"), cell: (item) => seen(item.actor) },
      { title: t("action"), cell: (item) => did(item) },
      { title: t("subject"), cell: (item) => (item.operation_id ? operationLink(item.operation_id) : seen(item.subject ?? "–")) },
      { title: t("from_to"), cell: (item) => [item.from ? word(item.from) : "", item.to ? ` → ${word(item.to)}` : ""] },
      { title: t("note"), cell: (item) => (item.note ? seen(item.note) : "–") },
    ], items),
  });
  await shown.begin();
  return { title: t("audit"), content: shown.content, again: shown.again };
}

/** What somebody did, in words where there are some. */
export function did({ action }) {
  return t.has(`did.${action}`) ? t(`did.${action}`) : seen(action);
}

function word(name) {
  return t.has(`state.${name}`) ? t(`state.${name}`) : t.has(`role.${name}`) ? t(`role.${name}`) : name;
}
