// Shows the OpenAPI document of this service as a page: paths, fields, responses.
"use strict";

function element(name, text, parent) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  parent.append(made);
  return made;
}

function table(rows, parent) {
  const made = element("table", "", parent);
  for (const row of rows) {
    const line = element("tr", "", made);
    for (const cell of row) element("td", cell, line);
  }
}

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.items) return "list of " + typeOf(schema.items);
  if (schema.oneOf) return schema.oneOf.map(typeOf).join(" or ");
  return [schema.type].flat().join(" or ");
}

function showSchema(name, schema, parent) {
  element("h3", name, parent);
  if (schema.description) element("p", schema.description, parent);
  const required = schema.required || [];
  const field = ([key, value]) => [key + (required.includes(key) ? " *" : ""), typeOf(value), value.description || ""];
  table(Object.entries(schema.properties || {}).map(field), parent);
}

function showOperation(api, path, method, operation, parent) {
  element("h2", method.toUpperCase() + " " + path, parent);
  element("p", operation.summary, parent);
  if (operation.description) element("p", operation.description, parent);
  const body = operation.requestBody && operation.requestBody.content["application/json"];
  if (body) {
    element("p", "Body: " + typeOf(body.schema), parent);
    element("pre", JSON.stringify(body.example, null, 2), parent);
  }
  const resolve = (response) =>
    response.$ref ? api.components.responses[response.$ref.split("/").pop()] : response;
  table(Object.entries(operation.responses).map(([status, one]) => [status, resolve(one).description]), parent);
}

fetch("/openapi.json").then((response) => response.json()).then((api) => {
  document.getElementById("summary").prepend(api.info.description + " ");
  const paths = document.getElementById("paths");
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      if (method !== "parameters") showOperation(api, path, method, operation, paths);
    }
  }
  const schemas = document.getElementById("schemas");
  for (const [name, schema] of Object.entries(api.components.schemas)) showSchema(name, schema, schemas);
});
