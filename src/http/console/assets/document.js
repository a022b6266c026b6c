// The API in writing, from the document that the gateway makes of its own code.

import { get } from "./api.js";
import { h } from "./dom.js";
import { t } from "./words.js";

export async function page() {
  const written = await get("/openapi.json");
  const all = Object.entries(written.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => ({ path, method, operation })));
  return {
    title: t("api"),
    content: [
      h("p", {}, t("api.what"), " ", h("a", { href: "/openapi.json" }, "/openapi.json")),
      all.map((one) => operation(one)),
      h("section", {}, h("h2", {}, t("api.shapes")), Object.entries(written.components.schemas).map(([name, schema]) =>
        h("details", { id: `shape-${name}` }, h("summary", {}, h("code", {}, name), " ", schema.description ?? ""), h("pre", { tabindex: "0" }, JSON.stringify(schema, null, 2))))),
    ],
  };
}

function operation({ path, method, operation }) {
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  return h("details", { class: "api" }, h("summary", {}, h("code", { class: `method ${method}` }, method.toUpperCase()), " ", h("code", {}, path), " ",
    h("span", {}, operation.summary ?? operation.description ?? ""), " ", h("small", {}, t(`role.${operation["x-role"]}`))),
  operation.parameters ? h("ul", {}, operation.parameters.map((parameter) => h("li", {}, h("code", {}, parameter.name), ` (${parameter.in}${parameter.required ? "" : ", " + t("optional")}) `, parameter.description ?? ""))) : null,
  body ? h("p", {}, t("api.body"), " ", shape(body)) : null,
  h("ul", {}, Object.entries(operation.responses).map(([status, answer]) => h("li", {}, h("code", {}, status), " ", answer.description, " ",
    Object.values(answer.content ?? {}).map((content) => shape(content.schema))))));
}

function shape(schema) {
  const reference = schema?.$ref ?? schema?.oneOf?.map((one) => one.$ref).find(Boolean);
  return reference ? h("code", {}, reference.split("/").pop()) : h("code", {}, JSON.stringify(schema ?? {}));
}
