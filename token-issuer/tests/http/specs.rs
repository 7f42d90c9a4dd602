//! The two documents of the API match the code.

use std::collections::BTreeSet;

use crate::common::{Service, agent};
use slipgate_token_issuer::http::{
    DRAIN_BYTES, ErrorCode, MAX_BODY_BYTES, MAX_EVENT_STREAMS, MAX_EVENT_STREAMS_PER_KEY, REGISTRATION_FIELDS,
    REQUEST_FIELDS, RESPONSE_FIELDS, ROUTES,
};
use slipgate_token_issuer::registry;
use slipgate_token_issuer::{MAX_LIFETIME_SECONDS, MAX_TIMEOUT_SECONDS};
use yaml_rust2::{Yaml, YamlLoader};

fn read(name: &str) -> String {
    let path = format!("{}/../specs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn openapi() -> Yaml {
    YamlLoader::load_from_str(&read("openapi.yaml")).unwrap().remove(0)
}

fn keys(yaml: &Yaml) -> BTreeSet<&str> {
    yaml.as_hash().unwrap().keys().map(|key| key.as_str().unwrap()).collect()
}

fn strings(yaml: &Yaml) -> Vec<&str> {
    yaml.as_vec().unwrap().iter().map(|entry| entry.as_str().unwrap()).collect()
}

fn set<'a>(names: &[&'a str]) -> BTreeSet<&'a str> {
    names.iter().copied().collect()
}

/// Resolves a `$ref` within the document.
fn resolve<'a>(document: &'a Yaml, node: &'a Yaml) -> &'a Yaml {
    let Some(reference) = node["$ref"].as_str() else { return node };
    let found = reference.strip_prefix("#/").unwrap().split('/').fold(document, |node, name| &node[name]);
    assert!(!found.is_badvalue(), "{reference} leads nowhere");
    found
}

fn all_references<'a>(node: &'a Yaml, found: &mut Vec<&'a Yaml>) {
    match node {
        Yaml::Hash(hash) => {
            if node["$ref"].as_str().is_some() {
                found.push(node);
            }
            hash.values().for_each(|value| all_references(value, found));
        }
        Yaml::Array(entries) => entries.iter().for_each(|entry| all_references(entry, found)),
        _ => {}
    }
}

#[test]
fn openapi_lists_exactly_the_routes() {
    let document = openapi();
    assert_eq!(document["openapi"].as_str(), Some("3.1.0"));
    assert_eq!(keys(&document["paths"]), ROUTES.iter().map(|(path, _)| *path).collect());
    for (path, _) in ROUTES {
        let methods: BTreeSet<_> = ROUTES.iter().filter(|route| route.0 == path).map(|route| route.1).collect();
        let mut documented = keys(&document["paths"][path]);
        documented.remove("parameters");
        assert_eq!(documented, methods, "{path}");
    }
}

#[test]
fn openapi_references_resolve() {
    let document = openapi();
    let mut references = Vec::new();
    all_references(&document, &mut references);
    assert!(references.len() > 20);
    for reference in references {
        resolve(&document, reference);
    }
}

#[test]
fn openapi_has_the_fields_of_request_and_response() {
    let document = openapi();
    let schemas = &document["components"]["schemas"];
    assert_eq!(keys(&schemas["TokenRequest"]["properties"]), set(&REQUEST_FIELDS));
    assert_eq!(schemas["TokenRequest"]["additionalProperties"].as_bool(), Some(false));
    assert_eq!(keys(&schemas["Registration"]["properties"]), set(&REGISTRATION_FIELDS));
    assert_eq!(schemas["Registration"]["additionalProperties"].as_bool(), Some(false));
    assert_eq!(keys(&schemas["Token"]["properties"]), set(&RESPONSE_FIELDS));
    let mut required = set(&RESPONSE_FIELDS);
    // Only responses to a group have it.
    required.remove("server_ids");
    assert_eq!(set(&strings(&schemas["Token"]["required"])), required);
}

#[test]
fn openapi_has_the_limits() {
    let document = openapi();
    let properties = &document["components"]["schemas"]["TokenRequest"]["properties"];
    let maximum = |field: &str| properties[field]["maximum"].as_i64();
    assert_eq!(maximum("lifetime_seconds"), Some(MAX_LIFETIME_SECONDS.into()));
    assert_eq!(maximum("timeout_seconds"), Some(MAX_TIMEOUT_SECONDS.into()));
    assert_eq!(properties["server_addresses"]["maxItems"].as_i64(), Some(32));
    for (path, method) in [("/v1/tokens", "post"), ("/v1/servers/{id}", "put")] {
        let body = document["paths"][path][method]["requestBody"]["description"].as_str().unwrap();
        assert_eq!(body, format!("At most {MAX_BODY_BYTES} bytes."));
    }
    let of_server = &document["components"]["schemas"]["Registration"]["properties"];
    assert_eq!(of_server["slots"]["maximum"].as_i64(), Some(registry::MAX_SLOTS.into()));
    for (limit, documented) in [
        (registry::MAX_ADDRESSES_PER_SERVER, &of_server["addresses"]["maxItems"]),
        (registry::MAX_ADMITTED_PER_HEARTBEAT, &of_server["admitted_client_ids"]["maxItems"]),
        (registry::MAX_REGIONS, &properties["regions"]["maxItems"]),
        (registry::MAX_SERVERS_PER_GROUP_TOKEN, &properties["server_count"]["maximum"]),
        (registry::MAX_NAME_BYTES, &document["components"]["schemas"]["Name"]["maxLength"]),
    ] {
        assert_eq!(documented.as_i64(), i64::try_from(limit).ok());
    }
}

#[test]
fn openapi_has_the_error_codes_under_their_status() {
    let document = openapi();
    let error = &document["components"]["schemas"]["Error"]["properties"]["error"];
    let codes = strings(&error["properties"]["code"]["enum"]);
    assert_eq!(codes, ErrorCode::ALL.map(ErrorCode::name), "in this order");

    let paths = &document["paths"];
    for code in ErrorCode::ALL {
        let responses = match code {
            ErrorCode::ServerReplaced | ErrorCode::LateHeartbeat => &paths["/v1/servers/{id}"]["put"]["responses"],
            _ => &paths["/v1/tokens"]["post"]["responses"],
        };
        let status = match code {
            // Applies to every undocumented path.
            ErrorCode::NotFound => "default".to_owned(),
            code => code.status().to_string(),
        };
        let response = resolve(&document, &responses[status.as_str()]);
        let description = response["description"].as_str().unwrap_or_else(|| panic!("{status} is not described"));
        assert!(description.contains(code.name()), "{status} does not name {}", code.name());
    }
}

#[test]
fn every_response_in_openapi_is_json_with_its_headers() {
    let document = openapi();
    for (path, method) in ROUTES {
        for (status, response) in document["paths"][path][method]["responses"].as_hash().unwrap() {
            let response = resolve(&document, response);
            let store = resolve(&document, &response["headers"]["Cache-Control"]);
            assert_eq!(store["schema"]["const"].as_str(), Some("no-store"), "{path} {status:?}");
            let id = resolve(&document, &response["headers"]["X-Request-Id"]);
            assert_eq!(id["schema"]["maxLength"].as_i64(), Some(64), "{path} {status:?}");
            let media = match path {
                _ if status.as_str() != Some("200") => "application/json",
                "/v1/server-events" => "text/event-stream",
                "/metrics" => "application/openmetrics-text",
                "/docs" => "text/html",
                "/docs.js" => "text/javascript",
                "/docs.css" => "text/css",
                _ => "application/json",
            };
            assert_eq!(keys(&response["content"]), set(&[media]), "{path} {status:?}");
        }
    }
}

#[test]
fn response_of_the_service_matches_openapi() {
    let document = openapi();
    let schemas = &document["components"]["schemas"];
    let service = Service::start();
    let response = service.request_token(r#"{"client_id": 1}"#);
    let schema = &schemas["Token"]["properties"];
    for (name, value) in response.json.as_object().unwrap() {
        let fits = match schema[name.as_str()]["type"].as_str().unwrap() {
            "string" => value.is_string(),
            "integer" => value.is_u64(),
            "array" => value.is_array(),
            other => panic!("{other}"),
        };
        assert!(fits, "{name}: {value}");
    }
    let length = response.json["token"].as_str().unwrap().len();
    assert_eq!(schema["token"]["minLength"].as_i64(), i64::try_from(length).ok());
    let health = agent().get(service.url("/v1/health")).call().unwrap().body_mut().read_to_string().unwrap();
    let health: serde_json::Value = serde_json::from_str(&health).unwrap();
    assert_eq!(health["status"].as_str(), schemas["Health"]["properties"]["status"]["const"].as_str());
}

#[test]
fn guide_lists_every_route_field_code_and_limit() {
    let guide = read("http-api.md");
    for (path, method) in ROUTES {
        let title = format!("## {} {path}", method.to_uppercase());
        assert!(
            guide.contains(&title)
                || guide.contains(&format!("`{} {path}`", method.to_uppercase()))
                || guide.contains(&format!("`{path}`")),
            "{path}"
        );
    }
    for field in REQUEST_FIELDS.iter().chain(&RESPONSE_FIELDS).chain(&REGISTRATION_FIELDS) {
        assert!(guide.contains(&format!("`{field}`")), "{field}");
    }
    for code in ErrorCode::ALL {
        let row = format!("| {} | `{}` |", code.status(), code.name());
        assert!(guide.contains(&row), "{row}");
    }
    assert!(guide.contains(&format!("at most {MAX_BODY_BYTES} bytes")));
    let streams =
        format!("may have {MAX_EVENT_STREAMS_PER_KEY} streams at a time, and all\nkeys together {MAX_EVENT_STREAMS}");
    assert!(guide.contains(&streams));
    assert!(guide.contains(&format!("{} KiB", DRAIN_BYTES / 1024)));
}

/// Converts YAML to JSON.
fn to_json(yaml: &Yaml) -> serde_json::Value {
    match yaml {
        Yaml::Hash(hash) => {
            hash.iter().map(|(key, value)| (key.as_str().unwrap().to_owned(), to_json(value))).collect()
        }
        Yaml::Array(entries) => entries.iter().map(to_json).collect(),
        Yaml::String(text) => text.as_str().into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Boolean(value) => (*value).into(),
        // The maximum of a client id exceeds the integers of YAML.
        Yaml::Real(text) => text.parse::<u64>().unwrap().into(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn service_returns_openapi_yaml_as_json() {
    let served =
        agent().get(Service::start().url("/openapi.json")).call().unwrap().body_mut().read_to_string().unwrap();
    let served: serde_json::Value = serde_json::from_str(&served).unwrap();
    assert!(served == to_json(&openapi()), "write token-issuer/src/http/openapi.json again from specs/openapi.yaml");
}
