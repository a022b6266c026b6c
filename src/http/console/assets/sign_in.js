// Signing in: by name and password, or by a token; and the first administrator.

import { signIn } from "./api.js";
import { fill, h } from "./dom.js";
import { t } from "./words.js";

export function page({ first, entered, faultOf }) {
  const fault = h("p", { class: "fault", role: "alert" });
  const field = (name, label, type, complete) =>
    h("label", {}, label, h("input", { name, type, autocomplete: complete, required: true, spellcheck: "false", autocapitalize: "none" }));
  const form = (name, fields, words, credentials) => h("form", {
    id: name,
    onsubmit: async (event) => {
      event.preventDefault();
      const given = Object.fromEntries(new FormData(event.target));
      fill(fault);
      const button = event.target.querySelector("button");
      button.disabled = true;
      try {
        entered(await signIn(credentials(given), first !== undefined));
      } catch (error) {
        fill(fault, error.status === 401 && first === undefined ? t("sign_in.wrong") : faultOf(error));
        button.disabled = false;
      }
    },
  }, fields, h("button", { type: "submit", class: "primary" }, words));

  if (first !== undefined) {
    return h("section", { class: "entrance" }, h("h1", {}, t("first.title")), h("p", {}, t("first.text")),
      form("first", [field("name", t("name"), "text", "username"), field("password", t("password"), "password", "new-password"),
        h("p", { class: "hint" }, t("password.hint"))], t("first.make"), (given) => ({ secret: first, ...given })), fault);
  }
  return h("section", { class: "entrance" }, h("h1", {}, t("sign_in")),
    form("by-password", [field("name", t("name"), "text", "username"), field("password", t("password"), "password", "current-password")],
      t("sign_in"), (given) => given),
    h("details", {}, h("summary", {}, t("sign_in.by_token")),
      form("by-token", [field("token", t("token"), "password", "off")], t("sign_in"), (given) => given),
      h("p", { class: "hint" }, t("sign_in.token_hint"))),
    fault);
}
