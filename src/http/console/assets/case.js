// One case: what happened, what is known and what is not, and the actions that the state allows.

import { get, post } from "./api.js";
import { fill, h, outward, seen } from "./dom.js";
import { entity, operationLink, table, time } from "./show.js";
import { t } from "./words.js";

/** The panel, or null where nobody has to decide anything. `decided(operation, action)` is called when it is done. */
export function panel(operation, { decided, faultOf }) {
  const { status, reason } = operation;
  const choice = (action) => operation.choices.find((choice) => choice.action === action);
  const open = operation.choices.some(({ refusal }) => !refusal);
  if (status !== "needs_review" && status !== "failed_terminal" && !open) return null;
  const place = h("div", { class: "decision" });
  const fault = h("div", { class: "fault", role: "alert" });
  const words = { crm: operation.crm, attempts: operation.attempts, key: operation.source_key ?? "" };

  async function decide(body) {
    fill(fault);
    const buttons = place.querySelectorAll("button[type=submit]");
    for (const button of buttons) button.disabled = true;
    try {
      const after = await post(`/v1/admin/operations/${operation.operation_id}/resolve`, body, { "if-match": `"${operation.version}"` });
      decided(after, body.action);
    } catch (error) {
      for (const button of buttons) button.disabled = false;
      fill(fault, h("p", {}, faultOf(error)),
        error.status === 412 || error.status === 409 ? h("button", { type: "button", onclick: () => decided(null) }, t("load_again")) : null);
    }
  }

  /** A form of one decision. */
  function ask(action, title, fields, bodyOf, { note = "optional" } = {}) {
    const form = h("form", {
      "data-decision": action,
      onsubmit: (event) => {
        event.preventDefault();
        const given = new FormData(event.target);
        const body = { action: action === "link" ? "complete" : action, ...bodyOf(given) };
        const text = (given.get("note") ?? "").trim();
        decide(text ? { ...body, note: text } : body);
      },
    }, h("h3", {}, title), fields,
    h("label", {}, t(note === "required" ? "note.why" : "note.maybe"), h("input", { name: "note", maxlength: 2000, required: note === "required", autocomplete: "off" })),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, title), h("button", { type: "button", onclick: () => fill(place) }, t("cancel"))));
    fill(place, form);
    form.querySelector("input:not([type=hidden]), textarea")?.focus();
  }

  const forms = {
    complete: (crmId = operation.crm_id ?? "") => ask("complete", t("action.complete"),
      [h("p", { class: "hint" }, t("complete.what")), h("label", {}, t("crm_id"), h("input", { name: "crm_id", required: true, maxlength: 255, value: crmId, autocomplete: "off" }))],
      (given) => ({ crm_id: given.get("crm_id").trim() })),
    retry: () => {
      const sent = operation.attempts > 0 && reason !== "rejected";
      const edit = editor(operation.lead);
      ask("retry", t(sent ? "action.create_again" : reason === "payload_conflict" ? "action.forward" : "action.retry"), [
        sent ? h("p", { class: "warning" }, t("retry.warning")) : null,
        edit.fields,
        sent ? h("label", { class: "statement" }, h("input", { type: "checkbox", name: "statement", required: true }), " ", t("statement")) : null,
      ], () => edit.body(), { note: sent ? "required" : "optional" });
    },
    reject: () => ask("reject", t(reason === "payload_conflict" || reason === "likely_copy" ? "action.discard" : "action.reject"),
      h("p", { class: "hint" }, t("reject.what")), () => ({}), { note: "required" }),
    look_up: async () => {
      fill(place, h("p", { role: "status" }, t("look_up.running")));
      try {
        const { items } = await post(`/v1/admin/operations/${operation.operation_id}/lookup`, {});
        fill(place, candidates(items));
        place.querySelector("h3").focus();
      } catch (error) {
        fill(place);
        fill(fault, h("p", {}, faultOf(error)));
      }
    },
  };

  /** What the CRM has, beside the lead. */
  function candidates(items) {
    if (items.length === 0) return h("div", { id: "candidates" }, h("h3", { tabindex: "-1" }, t("look_up.none")), h("p", {}, t("look_up.none.what")));
    return h("div", { id: "candidates" }, h("h3", { tabindex: "-1" }, t("look_up.found", { count: items.length })), h("div", { class: "side-by-side" },
      h("section", {}, h("h4", {}, t("lead")), leadTable(operation.lead)),
      items.map((item) => h("section", {}, h("h4", {}, entity(item.crm_id, item.link)),
        table(t("in_crm"), [{ title: t("field"), cell: ([name]) => seen(name) }, { title: t("value"), cell: ([, text]) => seen(text) }], item.shown),
        choice("complete")?.refusal ? null : h("button", { type: "button", class: "primary", "data-link": item.crm_id, onclick: () => forms.complete(item.crm_id) }, t("action.link_this"))))));
  }

  const button = (action, label, key, act) => {
    const { refusal, not_before: from } = choice(action) ?? { refusal: t("nothing") };
    // What the state does not know is not offered; what it will know later says when.
    if (refusal && !from) return null;
    return h("button", { type: "button", "data-action": action, disabled: Boolean(refusal), "aria-keyshortcuts": key, onclick: act }, label, " ", h("kbd", {}, key),
      from ? h("small", {}, " ", t("from"), " ", time(from)) : null);
  };
  const again = operation.attempts > 0 && reason !== "rejected" ? "action.create_again" : reason === "payload_conflict" ? "action.forward" : "action.retry";
  const content = h("section", { class: `case ${reason ?? ""}`, id: "case", "aria-labelledby": "case-title" },
    h("h2", { id: "case-title" }, t.has(`happened.${reason}`) ? t(`happened.${reason}`, words) : t("case.open")),
    reason ? h("div", { class: "known" },
      t.has(`known.${reason}`) ? h("p", {}, h("strong", {}, t("known"), ": "), t(`known.${reason}`, words)) : null,
      t.has(`unknown.${reason}`) ? h("p", {}, h("strong", {}, t("unknown"), ": "), t(`unknown.${reason}`, words)) : null) : null,
    operation.last_error ? h("p", {}, h("strong", {}, t("said"), ": "), seen(operation.last_error)) : null,
    others(operation, forms, choice),
    h("div", { class: "buttons", role: "group", "aria-label": t("actions") },
      button("look_up", t("action.look_up"), "l", forms.look_up), button("complete", t("action.complete"), "c", () => forms.complete()),
      button("retry", t(again), "s", forms.retry),
      button("reject", t(reason === "payload_conflict" || reason === "likely_copy" ? "action.discard" : "action.reject"), "r", forms.reject)),
    fault, place);
  const press = (action) => () => content.querySelector(`button[data-action="${action}"]:not(:disabled)`)?.click();
  return { content, forms, keys: { l: press("look_up"), c: press("complete"), s: press("retry"), r: press("reject") } };
}

/** Two entities of one operation, or several candidates: each with its link, and the choice of the one that stays. */
function others(operation, forms, choice) {
  const ids = [...(operation.crm_id ? [{ crm_id: operation.crm_id, link: operation.link }] : []), ...operation.other_crm_ids];
  if (operation.other_crm_ids.length === 0) return null;
  return h("ul", { class: "entities" }, ids.map(({ crm_id: id, link }) => h("li", {}, entity(id, link), " ",
    choice("complete")?.refusal ? null : h("button", { type: "button", "data-link": id, onclick: () => forms.complete(id) }, t("action.link_this")))));
}

/** The lead as pairs of a name and a text. */
export function flat(lead) {
  if (!lead) return [];
  const texts = (contacts) => (contacts ?? []).map(({ text }) => text).join(", ");
  const plain = [["name", lead.name], ["first_name", lead.first_name], ["last_name", lead.last_name], ["phones", texts(lead.phones)], ["emails", texts(lead.emails)],
    ["message", lead.message], ["page", lead.page], ["referrer", lead.referrer]].map(([name, text]) => [t(`lead.${name}`), text]);
  const named = new Map();
  for (const [name, text] of [...Object.entries(lead.utm ?? {}).map(([name, text]) => [`utm_${name}`, text]), ...(lead.click_ids ?? []), ...(lead.fields ?? []),
    ...(lead.files ?? []).map((file) => [file.field, `${file.name} (${file.size} B)`])]) {
    named.set(name, named.has(name) ? `${named.get(name)}, ${text}` : text);
  }
  return [...plain, ...named].filter(([, text]) => text !== undefined && text !== null && text !== "");
}

export function leadTable(lead) {
  const value = (text) => (/^https?:\/\/\S+$/.test(text) ? outward(text) : seen(text));
  if (!lead) return h("p", { class: "empty" }, t("lead.none"));
  return table(t("lead"), [{ title: t("field"), cell: ([name]) => seen(name) }, { title: t("value"), cell: ([, text]) => value(text) }], flat(lead));
}

/** Two leads side by side, with exactly the differing fields marked. */
export function comparison(first, second, titles) {
  const [left, right] = [new Map(flat(first)), new Map(flat(second))];
  const names = [...new Set([...left.keys(), ...right.keys()])];
  const differs = (name) => left.get(name) !== right.get(name);
  const side = (map, name) => (map.has(name) ? (differs(name) ? h("mark", {}, seen(map.get(name))) : seen(map.get(name))) : h("span", { class: "none" }, "–"));
  return table(t("compare"), [
    { title: t("field"), cell: (name) => [differs(name) ? h("span", { class: "sign", title: t("differs") }, "≠ ") : null, seen(name)] },
    { title: titles[0], cell: (name) => side(left, name) },
    { title: titles[1], cell: (name) => side(right, name) },
  ], names, (name) => ({ class: differs(name) ? "differs" : null }));
}

/** Fields to correct a lead; what is not changed is sent as it was. */
function editor(lead) {
  const before = lead ?? {};
  const inputs = [];
  const field = (label, value, write, area = false) => {
    const input = h(area ? "textarea" : "input", { value, maxlength: 10000, autocomplete: "off", rows: area ? 3 : null });
    inputs.push({ input, value, write });
    return h("label", {}, label, input);
  };
  const contacts = (name, list) => (list.length > 0 ? list : [{ text: "" }]).map((contact, at) =>
    field(t(`lead.${name}`), contact.text, (lead, text) => {
      lead[name] = lead[name] ?? [];
      if (text === "") delete lead[name][at];
      else lead[name][at] = { text };
    }));
  const plain = (name, area) => field(t(`lead.${name}`), before[name] ?? "", (lead, text) => {
    if (text === "") delete lead[name];
    else lead[name] = text;
  }, area);
  const fields = h("details", { class: "edit", open: !lead }, h("summary", {}, t("edit")),
    plain("name"), before.first_name !== undefined ? plain("first_name") : null, before.last_name !== undefined ? plain("last_name") : null,
    contacts("phones", before.phones ?? []), contacts("emails", before.emails ?? []), plain("message", true),
    (before.fields ?? []).map(([name, text], at) => field(seen(name), text, (lead, changed) => (lead.fields[at] = [name, changed]))));
  return {
    fields,
    body: () => {
      const changed = inputs.filter(({ input, value }) => input.value !== value);
      if (changed.length === 0) return {};
      const after = structuredClone(before);
      for (const { input, write } of changed) write(after, input.value.trim());
      for (const name of ["phones", "emails"]) if (after[name]) after[name] = after[name].filter(Boolean);
      return { lead: after };
    },
  };
}

/** For a conflict: what differs from the first, and where the first's entity is. */
export async function conflict(operation, forms) {
  if (!operation.conflicts_with) return null;
  const first = await get(`/v1/admin/operations/${operation.conflicts_with}`);
  const link = first.crm_id && !operation.choices.find(({ action }) => action === "complete")?.refusal
    ? h("button", { type: "button", "data-action": "link-first", onclick: () => forms.complete(first.crm_id) }, t("action.link_first"), " ", seen(first.crm_id)) : null;
  return h("section", { id: "conflict" }, h("h2", {}, t("compare")), comparison(first.lead, operation.lead,
    [t("compare.first"), t("compare.this")]), h("p", {}, t("compare.first"), ": ", operationLink(first.operation_id), " ", t(`state.${first.status}`), " ", entity(first.crm_id, first.link)), link);
}
