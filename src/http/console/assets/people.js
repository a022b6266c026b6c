// People and tokens: who may do what.

import { get, post } from "./api.js";
import { fill, h, seen } from "./dom.js";
import { table, time } from "./show.js";
import { t } from "./words.js";

export async function page({ who, tell, faultOf }) {
  const place = h("div", {});
  const made = h("div", { id: "made", role: "status" });
  const fault = h("p", { class: "fault", role: "alert" });
  const act = async (path, body, words) => {
    fill(fault);
    try {
      const answer = await post(path, body);
      tell(words);
      await draw();
      return answer;
    } catch (error) {
      fill(fault, faultOf(error));
      return null;
    }
  };
  const roles = (chosen, attributes = {}) => h("select", { "aria-label": t("role"), ...attributes },
    ["viewer", "operator", "admin"].map((role) => h("option", { value: role, selected: role === chosen }, t(`role.${role}`))));

  async function draw() {
    const [people, tokens] = await Promise.all([get("/v1/admin/people"), get("/v1/admin/tokens")]);
    fill(place, h("section", {}, h("h2", {}, t("people.people")), table(t("people.people"), [
      { title: t("name"), cell: (person) => seen(person.name) },
      { title: t("role"), cell: (person) => roles(person.role, { onchange: (event) => act(of(person), { role: event.target.value }, t("saved")) }) },
      { title: t("last_use"), cell: (person) => time(person.last_used_at) },
      { title: t("state"), cell: (person) => (person.disabled_at ? [t("people.out"), " ", time(person.disabled_at)] : t("people.in")) },
      { title: t("action"), cell: personActions },
    ], people.items), download("/v1/admin/people.csv"), personForm()),
    h("section", {}, h("h2", {}, t("people.tokens")), h("p", { class: "hint" }, t("people.tokens.what")), made, table(t("people.tokens"), [
      { title: t("name"), cell: (token) => seen(token.name) },
      { title: t("role"), cell: (token) => t(`role.${token.role}`) },
      { title: t("made"), cell: (token) => time(token.created_at) },
      { title: t("last_use"), cell: (token) => time(token.last_used_at) },
      { title: t("state"), cell: (token) => (token.revoked_at ? [t("people.revoked"), " ", time(token.revoked_at)] : t("people.active")) },
      { title: t("action"), cell: (token) => (token.revoked_at ? null : h("button", {
        type: "button", "data-action": "revoke",
        onclick: () => act(`/v1/admin/tokens/${encodeURIComponent(token.name)}/revoke`, {}, t("people.revoked")),
      }, t("people.revoke"))) },
    ], tokens.items), download("/v1/admin/tokens.csv"), tokenForm()));
  }

  const download = (href) => h("p", {}, h("a", { class: "button", href, download: true }, t("export")));
  const of = (person) => `/v1/admin/people/${encodeURIComponent(person.name)}`;
  const personActions = (person) => {
    if (person.disabled_at) return h("button", { type: "button", onclick: () => act(of(person), { disabled: false }, t("saved")) }, t("people.let_in"));
    const password = h("input", { type: "password", name: "password", autocomplete: "new-password", minlength: 12, required: true, "aria-label": t("password.new") });
    return [h("details", { class: "ask" }, h("summary", {}, t("password.new")), h("form", {
      onsubmit: (event) => {
        event.preventDefault();
        act(of(person), { password: password.value }, t("saved"));
      },
    }, password, h("p", { class: "hint" }, t("password.hint")), h("button", { type: "submit" }, t("save")))),
    person.name === who.name ? null : h("button", { type: "button", onclick: () => act(of(person), { disabled: true }, t("saved")) }, t("people.shut_out"))];
  };
  const personForm = () => h("form", {
    id: "new-person", class: "row",
    onsubmit: (event) => {
      event.preventDefault();
      act("/v1/admin/people", Object.fromEntries(new FormData(event.target)), t("saved"));
    },
  }, h("label", {}, t("name"), h("input", { name: "name", required: true, maxlength: 100, autocomplete: "off" })),
  h("label", {}, t("role"), roles("operator", { name: "role" })),
  h("label", {}, t("password"), h("input", { name: "password", type: "password", required: true, minlength: 12, autocomplete: "new-password" })),
  h("button", { type: "submit", class: "primary" }, t("people.add")));
  const tokenForm = () => h("form", {
    id: "new-token", class: "row",
    onsubmit: async (event) => {
      event.preventDefault();
      const token = await act("/v1/admin/tokens", Object.fromEntries(new FormData(event.target)), t("saved"));
      if (token) fill(made, h("p", {}, t("people.token_made"), " ", seen(token.name), ":"), h("code", { id: "token", tabindex: "0" }, token.token), h("p", { class: "hint" }, t("people.once")));
    },
  }, h("label", {}, t("name"), h("input", { name: "name", required: true, maxlength: 100, autocomplete: "off" })),
  h("label", {}, t("role"), roles("viewer", { name: "role" })),
  h("button", { type: "submit", class: "primary" }, t("people.make_token")));

  await draw();
  return { title: t("people"), content: [fault, place] };
}
