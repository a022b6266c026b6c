// The admin API, as the console asks it. One place knows the session's token.

let csrf = "";
let onSignedOut = () => {};

/** What the gateway answered instead. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `HTTP ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/** Calls this when the session is over. */
export function whenSignedOut(call) {
  onSignedOut = call;
}

async function send(method, path, { body, headers = {}, quiet = false } = {}) {
  const all = { accept: "application/json", ...headers };
  if (method !== "GET") {
    all["x-csrf-token"] = csrf;
    all["content-type"] = "application/json";
  }
  if (quiet) all["x-leadonce-background"] = "1";
  let answer;
  try {
    answer = await fetch(path, { method, headers: all, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin" });
  } catch {
    throw new Refused(0, { detail: "" });
  }
  const text = await answer.text();
  let read = {};
  try {
    read = text === "" ? {} : JSON.parse(text);
  } catch {
    read = { detail: text.slice(0, 200) };
  }
  if (answer.ok) return read;
  if (answer.status === 401 && !path.startsWith("/console/")) onSignedOut();
  throw new Refused(answer.status, read);
}

/** GET with a query; what is empty is left out. `quiet`: the page looks again by itself, which does not keep the session alive. */
export function get(path, query = {}, quiet = false) {
  return send("GET", path + queryOf(query), { quiet });
}

/** POST. */
export function post(path, body, headers) {
  return send("POST", path, { body, headers });
}

/** `?name=value…`, or nothing. */
export function queryOf(query) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return pairs.length > 0 ? "?" + new URLSearchParams(pairs) : "";
}

/** Who is signed in, or null. */
export async function session() {
  try {
    return keep(await get("/console/session"));
  } catch (refused) {
    if (refused.status === 401) return null;
    throw refused;
  }
}

/** Signs in; `first`: makes the first administrator. */
export async function signIn(credentials, first = false) {
  return keep(await post(first ? "/console/first" : "/console/session", credentials));
}

/** Signs out here, or everywhere. */
export async function signOut(everywhere) {
  await post("/console/session/end", { everywhere });
}

function keep(who) {
  csrf = who.csrf;
  return who;
}
