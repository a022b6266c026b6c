// Makes elements. Text goes in as text nodes only: whatever came from outside is never read as markup.

/** An element; `on*` attributes are listeners, `true` is an attribute without a value, `null` and `false` are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children.flat(Infinity));
  return element;
}

/** Puts these in place of what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Controls (less line break and tab), bidirectional marks, zero widths, line separators, tags.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|[\u{e0000}-\u{e007f}]/gu;

/** A text of somebody else: set apart from ours, with its invisible characters shown by their code points. */
export function seen(text, attributes = {}) {
  const parts = [];
  let from = 0;
  const whole = String(text ?? "");
  for (const found of whole.matchAll(HIDDEN)) {
    parts.push(whole.slice(from, found.index));
    const code = "U+" + found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    parts.push(h("span", { class: "hidden-character", title: code }, code));
    from = found.index + found[0].length;
  }
  parts.push(whole.slice(from));
  return h("bdi", { ...attributes, class: `theirs ${attributes.class ?? ""}` }, parts);
}

/** A link to somewhere else, if it is one of the web; else only its text. */
export function outward(address, ...children) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    // No address.
  }
  const content = children.length > 0 ? children : [seen(address)];
  if (!url || (url.protocol !== "https:" && url.protocol !== "http:")) return h("span", {}, content);
  return h("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow" }, content);
}
