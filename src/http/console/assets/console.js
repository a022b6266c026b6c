// The frame: who is signed in, which page is shown, what is looked at again.

import { Refused, get, session, signOut, whenSignedOut } from "./api.js";
import { fill, h } from "./dom.js";
import { LANGUAGES, language, setLanguage, t } from "./words.js";
import * as overview from "./overview.js";
import * as reviews from "./reviews.js";
import * as operations from "./operations.js";
import * as operation from "./operation.js";
import * as logs from "./logs.js";
import * as people from "./people.js";
import * as written from "./document.js";
import * as entrance from "./sign_in.js";

const RANK = { viewer: 1, operator: 2, admin: 3 };
/** Address, words, smallest role, page. Those with a title stand in the menu. */
const PAGES = [
  { at: /^\/?$/, to: "#/", title: "overview", page: overview.page },
  { at: /^\/reviews$/, to: "#/reviews", title: "reviews", page: reviews.page },
  { at: /^\/operations$/, to: "#/operations", title: "operations", page: operations.page },
  { at: /^\/operations\/([^/]+)$/, page: operation.page },
  { at: /^\/deliveries$/, to: "#/deliveries", title: "deliveries", page: logs.deliveries },
  { at: /^\/audit$/, to: "#/audit", title: "audit", page: logs.audit },
  { at: /^\/people$/, to: "#/people", title: "people", role: "admin", page: people.page },
  { at: /^\/api$/, to: "#/api", title: "api", page: written.page },
];
const LOOK_AGAIN = 5000;

let who = null;
let shown = null;
const main = document.getElementById("main");
const top = document.getElementById("top");
const told = document.getElementById("told");

/** Whether the person may do what needs that role. */
function may(role) {
  return who !== null && RANK[who.role] >= RANK[role];
}

/** Says what was done, to eyes and to screen readers. */
function tell(...words) {
  fill(told, h("p", {}, ...words));
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => fill(told), 12000);
}

/** A fault, in words that say what to do. */
function faultOf(error) {
  if (!(error instanceof Refused)) {
    console.error(error);
    return t("fault.program");
  }
  return error.status === 0 ? t("fault.network") : error.message;
}

async function show() {
  const [path, query = ""] = (location.hash.slice(1) || "/").split("?");
  const first = /^\/first\/(\w+)$/.exec(path);
  if (shown?.stop) shown.stop();
  if (who === null) {
    shown = null;
    frame();
    document.title = `${t("sign_in")} · leadonce`;
    fill(main, entrance.page({ first: first?.[1], entered, faultOf }));
    focusFirst();
    return;
  }
  if (first) return void (location.hash = "#/");
  const place = PAGES.find((page) => page.at.test(path) && may(page.role ?? "viewer"));
  frame(place);
  if (!place) {
    fill(main, h("h1", {}, t("nothing_here")));
    return;
  }
  const context = {
    who, may, tell, faultOf,
    part: decodeURIComponent(place.at.exec(path)[1] ?? ""),
    query: Object.fromEntries(new URLSearchParams(query)),
    go: (to) => (location.hash === to ? show() : (location.hash = to)),
    /** Replaces the query of the address without a new page. */
    note: (query) => history.replaceState(null, "", `#${path}${query}`),
  };
  const mine = { stop: null };
  shown = mine;
  main.setAttribute("aria-busy", "true");
  try {
    const { title, content, again, keys } = await place.page(context);
    if (shown !== mine) return;
    document.title = `${title} · leadonce`;
    fill(main, h("h1", { tabindex: "-1" }, title), content);
    main.querySelector("h1").focus({ preventScroll: true });
    window.scrollTo(0, 0);
    mine.keys = keys;
    mine.stop = lookAgain(again);
  } catch (error) {
    if (shown === mine) fill(main, h("h1", {}, t("fault.title")), h("p", { class: "fault", role: "alert" }, faultOf(error)));
  } finally {
    main.removeAttribute("aria-busy");
  }
}

/** Looks again every few seconds while the page is seen; a page may say that there is nothing to look at. */
function lookAgain(again) {
  if (!again) return null;
  let stopped = false;
  let timer = 0;
  const step = async () => {
    if (!document.hidden) {
      try {
        await again();
        top.classList.remove("away");
      } catch (error) {
        if (error.status === 0 || error.status >= 500) top.classList.add("away");
      }
    }
    if (!stopped) timer = setTimeout(step, LOOK_AGAIN);
  };
  timer = setTimeout(step, LOOK_AGAIN);
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}

function frame(place) {
  document.documentElement.lang = language();
  document.getElementById("skip").textContent = t("skip");
  const choose = (words, name, options, value, chosen) =>
    h("label", { class: "choice" }, h("span", { class: "unseen" }, words),
      h("select", { name, onchange: (event) => chosen(event.target.value) },
        options.map(([value_, label]) => h("option", { value: value_, selected: value_ === value }, label))));
  const settings = [
    choose(t("language"), "language", LANGUAGES, language(), (chosen) => {
      setLanguage(chosen);
      show();
    }),
    choose(t("theme"), "theme", [["auto", t("theme.auto")], ["light", t("theme.light")], ["dark", t("theme.dark")]],
      localStorage.getItem("theme") ?? "auto", setTheme),
  ];
  const brand = h("a", { class: "brand", href: "#/" }, "leadonce");
  if (who === null) return void fill(top, brand, h("div", { class: "settings" }, settings));
  const link = (page) => h("a", { href: page.to, "aria-current": page === place ? "page" : null }, t(page.title),
    page.title === "reviews" ? h("span", { class: "count", id: "reviews-open" }) : null);
  fill(top, brand,
    h("nav", { "aria-label": t("menu") }, PAGES.filter((page) => page.title && may(page.role ?? "viewer")).map(link)),
    h("div", { class: "settings" }, settings,
      h("details", { class: "me" }, h("summary", {}, who.name, h("small", {}, " ", t(`role.${who.role}`))),
        h("button", { type: "button", id: "sign-out", onclick: () => leave(false) }, t("sign_out")),
        h("button", { type: "button", onclick: () => leave(true) }, t("sign_out_everywhere")))),
    h("p", { class: "away-note", role: "status" }, t("fault.network")));
  countReviews();
}

async function countReviews() {
  try {
    const { states } = await get("/v1/admin/overview", {}, true);
    const count = document.getElementById("reviews-open");
    if (count) count.textContent = states.needs_review > 0 ? states.needs_review : "";
  } catch {
    // The page itself says what is wrong.
  }
}

function setTheme(theme) {
  if (theme === "auto") localStorage.removeItem("theme");
  else localStorage.setItem("theme", theme);
  applyTheme();
}

function applyTheme() {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function entered(person) {
  who = person;
  if (location.hash.startsWith("#/first/")) history.replaceState(null, "", "#/");
  show();
}

async function leave(everywhere) {
  try {
    await signOut(everywhere);
  } catch (error) {
    if (error.status !== 401) return void tell(faultOf(error));
  }
  who = null;
  show();
}

function focusFirst() {
  main.querySelector("input")?.focus();
}

/** Keys of a page; not while somebody writes, and not with a modifier. */
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable]")) return;
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  const action = shown?.keys?.[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", show);
whenSignedOut(() => {
  if (who === null) return;
  who = null;
  show();
  tell(t("signed_out"));
});

applyTheme();
session().then((person) => {
  who = person;
  show();
}, (error) => fill(main, h("p", { class: "fault", role: "alert" }, faultOf(error))));
