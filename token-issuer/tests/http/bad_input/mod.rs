//! Bad input for each route, generated from the OpenAPI document: each response is one that the document describes, and
//! no input that the document excludes is accepted.

mod schema;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use slipgate_token_issuer::http::{HttpLimits, ROUTES};
use ureq::http::Request;

use self::schema::{Document, with};
use crate::common::{Service, TestResponse};

/// The addresses of the document's examples.
const EXAMPLE_SERVER: &str = "203.0.113.5:40000";
const METHODS: [&str; 8] = ["get", "post", "put", "delete", "patch", "options", "trace", "brew"];

/// A service, the document, and an agent that keeps its connection.
struct Tester {
    service: Service,
    document: Document,
    agent: ureq::Agent,
    responses: BTreeSet<String>,
}

/// One operation of the document.
#[derive(Clone, Copy)]
struct Operation {
    path: &'static str,
    method: &'static str,
}

/// What a request has besides its path.
#[derive(Clone, Copy)]
struct Sent<'a> {
    key: Option<&'a str>,
    content_type: Option<&'a str>,
    coding: Option<&'a str>,
    body: &'a [u8],
}

impl Tester {
    fn start() -> Self {
        let service = Service::start_with(HttpLimits::default(), &[EXAMPLE_SERVER]);
        let config = ureq::Agent::config_builder().http_status_as_error(false).allow_non_standard_methods(true);
        let agent = config.proxy(None).build().into();
        Self { service, document: Document::read(), agent, responses: BTreeSet::new() }
    }
}

impl Tester {
    fn operation(&self, operation: Operation) -> &Value {
        &self.document.0["paths"][operation.path][operation.method]
    }

    /// Sends a request and checks that the document describes its response. Returns the response.
    fn send(&mut self, operation: Operation, target: &str, sent: Sent<'_>, what: &str) -> TestResponse {
        let request = Request::builder().method(operation.method.to_uppercase().as_str()).uri(self.service.url(target));
        let headers =
            [("Authorization", sent.key), ("Content-Type", sent.content_type), ("Content-Encoding", sent.coding)];
        let request = headers.into_iter().fold(request, |request, (name, value)| match value {
            Some(value) => request.header(name, value),
            None => request,
        });
        let response = self.agent.run(request.body(sent.body).unwrap()).unwrap();
        let response = TestResponse::from(response);
        let place = format!("{} {target}, {what}", operation.method);
        self.check(operation, &response, &place);
        response
    }

    /// Checks status, media type, headers and code of a response against the document.
    fn check(&mut self, operation: Operation, response: &TestResponse, place: &str) {
        let responses = &self.operation(operation)["responses"];
        let status = response.status.to_string();
        let described = if responses[&status].is_null() && status == "404" { "default" } else { status.as_str() };
        let described = self.document.resolve(&responses[described]);
        assert!(described.is_object(), "{place}: status {status} is not described: {}", response.json);
        let media = response.header("content-type").unwrap();
        let known = described["content"].as_object().unwrap();
        assert!(known.keys().any(|name| media.starts_with(name)), "{place}: {media}");
        assert_eq!(response.header("cache-control"), Some("no-store"), "{place}");
        assert!(response.header("x-request-id").is_some_and(|id| (1..=64).contains(&id.len())), "{place}");
        if response.status >= 400 && response.json["error"].is_object() {
            let code = response.json["error"]["code"].as_str().unwrap();
            let text = described["description"].as_str().unwrap();
            assert!(text.contains(code), "{place}: {code} is not in {text:?}");
            self.responses.insert(format!("{status} {code}"));
        }
        assert!(response.status != 500, "{place}");
        assert!(!response.json.to_string().contains(&self.service.api_key.expose()[4..]), "{place}");
    }

    /// Returns the path of an operation, with this id if it has one.
    fn target(operation: Operation, id: &str) -> String {
        operation.path.replace("{id}", id)
    }
}

fn operations() -> impl Iterator<Item = Operation> {
    // A stream of events lasts a minute.
    let routes = ROUTES.into_iter().filter(|(path, _)| *path != "/v1/server-events");
    routes.map(|(path, method)| Operation { path, method })
}

fn plain(key: Option<&str>) -> Sent<'_> {
    Sent { key, content_type: None, coding: None, body: b"" }
}

fn json_body<'a>(key: &'a str, body: &'a str) -> Sent<'a> {
    Sent { key: Some(key), content_type: Some("application/json"), coding: None, body: body.as_bytes() }
}

#[test]
fn bad_paths_methods_and_keys_get_described_responses() {
    let mut tester = Tester::start();
    let bearer = tester.service.bearer();
    for operation in operations() {
        let target = Tester::target(operation, "a");
        if tester.operation(operation)["security"].as_array().is_some_and(|needed| !needed.is_empty()) {
            for wrong in [None, Some("Bearer sgk_wrong")] {
                let response = tester.send(operation, &target, plain(wrong), "no valid key");
                assert_eq!(response.status, 401, "{target}");
            }
        }
        let known: Vec<_> = ROUTES.iter().filter(|route| route.0 == operation.path).map(|route| route.1).collect();
        for method in METHODS.into_iter().filter(|method| !known.contains(method)) {
            let request = Request::builder().method(method.to_uppercase().as_str()).uri(tester.service.url(&target));
            let response = TestResponse::from(tester.agent.run(request.body(()).unwrap()).unwrap());
            tester.check(operation, &response, &format!("{method} {target}"));
            assert_eq!(response.status, 405, "{method} {target}");
            assert!(response.header("allow").is_some(), "{method} {target}");
        }
        if operation.path.contains("{id}") {
            let long = "x".repeat(65);
            for id in [
                ".",
                "..",
                "%2e",
                "%2E%2e",
                "%20",
                "%00",
                "%FF",
                "%2e%2e%2f",
                "%C3%A9",
                "a%2Fb",
                "a;b",
                "a%0d%0aX-Y:z",
                "*",
                "a:b",
                &long,
            ] {
                let sent = json_body(&bearer, r#"{"protocol_id": 1}"#);
                let response = tester.send(operation, &Tester::target(operation, id), sent, "a wrong id");
                assert_eq!(response.status, 400, "{id}");
            }
        }
    }
    let list = Operation { path: "/v1/servers", method: "get" };
    for query in ["?x=1", "?after=a&after=b", "?after=%FF", "?after=%20", "?after=", "?group=a&group=a", "?%00"] {
        let response = tester.send(list, &format!("/v1/servers{query}"), plain(Some(&bearer)), "a wrong query");
        assert_eq!(response.status, 400, "{query}");
    }
}

#[test]
fn query_is_refused_on_each_route_without_parameters() {
    let mut tester = Tester::start();
    let bearer = tester.service.bearer();
    let routes = ROUTES.into_iter().map(|(path, method)| Operation { path, method });
    for operation in routes {
        if !tester.operation(operation)["parameters"].is_null() {
            continue;
        }
        for query in ["?x=1", "?x", "?client_id=1", "?%FF"] {
            let target = format!("{}{query}", Tester::target(operation, "a"));
            let response = tester.send(operation, &target, json_body(&bearer, r#"{"client_id": 1}"#), "a query");
            assert_eq!(response.status, 400, "{target}");
            assert_eq!(response.json["error"]["code"], "invalid_field", "{target}");
        }
    }
    let health = Operation { path: "/healthz", method: "get" };
    assert_eq!(tester.send(health, "/healthz?", plain(None), "an empty query").status, 200);
}

#[test]
fn bad_hosts_get_status_421_on_each_route() {
    let mut tester = Tester::start();
    for operation in operations() {
        let (method, target) = (operation.method.to_uppercase(), Tester::target(operation, "a"));
        for hosts in ["", "Host: \r\n", "Host: a\r\nHost: b\r\n"] {
            let response = tester.service.raw(format!("{method} {target} HTTP/1.1\r\n{hosts}\r\n").as_bytes());
            assert!(response.starts_with("HTTP/1.1 421 "), "{method} {target} {hosts:?}: {response}");
        }
        assert!(tester.operation(operation)["responses"]["421"].is_object(), "{target}");
    }
    tester.responses.clear();
}

/// Returns the operations with a body, each with a valid example of it.
fn operations_with_body(document: &Document) -> Vec<(Operation, Map<String, Value>)> {
    let found = operations().filter_map(|operation| {
        let body = &document.0["paths"][operation.path][operation.method]["requestBody"];
        let example = body["content"]["application/json"]["example"].as_object()?;
        Some((operation, example.clone()))
    });
    let mut found: Vec<_> = found.collect();
    for (_, example) in &mut found {
        if example.contains_key("protocol_id") {
            example.insert("protocol_id".to_owned(), json!(crate::common::PROTOCOL_ID.to_string()));
        }
    }
    found
}

#[test]
fn no_value_that_the_document_excludes_is_accepted() {
    let mut tester = Tester::start();
    let bearer = tester.service.bearer();
    let operations = operations_with_body(&tester.document);
    assert_eq!(operations.len(), 2);
    let mut excluded = 0;
    for (operation, example) in operations {
        let target = Tester::target(operation, "a");
        let body = Value::Object(example.clone()).to_string();
        let response = tester.send(operation, &target, json_body(&bearer, &body), "the example");
        assert!(response.status < 300, "{}", response.json);
        let schema = tester.operation(operation)["requestBody"]["content"]["application/json"]["schema"].clone();
        let schema = tester.document.resolve(&schema).clone();
        for (field, of_field) in schema["properties"].as_object().unwrap() {
            let example_value = example.get(field).cloned().unwrap_or_default();
            for value in tester.document.values(of_field, &example_value) {
                let body = with(&example, field, &value);
                let response = tester.send(operation, &target, json_body(&bearer, &body), &format!("{field}: {value}"));
                if !tester.document.accepts(of_field, &value) {
                    excluded += 1;
                    assert_eq!(response.status, 400, "{field}: {value}: {}", response.json);
                    assert_eq!(response.json["error"]["field"], field.as_str(), "{value}: {}", response.json);
                }
            }
        }
        for field in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            for body in [with(&example, field, &Value::Null), without(&example, field)] {
                let response = tester.send(operation, &target, json_body(&bearer, &body), &format!("no {field}"));
                assert_eq!(response.json["error"]["code"], "missing_field", "{body}");
            }
        }
        for field in ["unknown", "", "__proto__", "Client_Id", "a\u{0}"] {
            let body = with(&example, field, &json!(1));
            let response = tester.send(operation, &target, json_body(&bearer, &body), "an unknown field");
            assert_eq!(response.json["error"]["code"], "unknown_field", "{body}");
        }
    }
    assert!(excluded > 200, "{excluded}");
    let seen: Vec<_> = tester.responses.iter().map(String::as_str).collect();
    for code in ["400 invalid_field", "400 out_of_range", "400 unknown_protocol_id", "403 invalid_player_jwt"] {
        assert!(seen.contains(&code), "{code}: {seen:?}");
    }
}

fn without(object: &Map<String, Value>, field: &str) -> String {
    let mut object = object.clone();
    object.remove(field);
    Value::Object(object).to_string()
}

#[test]
fn malformed_bodies_get_described_responses() {
    let mut tester = Tester::start();
    let bearer = tester.service.bearer();
    for (operation, example) in operations_with_body(&tester.document) {
        let target = Tester::target(operation, "a");
        let valid = Value::Object(example).to_string();
        let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
        let malformed = [
            "",
            " ",
            "null",
            "[]",
            "7",
            "\"x\"",
            "{",
            "}",
            "{]",
            "nul",
            "{\"a\"}",
            "{'a': 1}",
            "{a: 1}",
            "\u{feff}{}",
            "{\"client_id\": 01}",
            "{\"client_id\": 1e}",
            "{\"a\": \"\\x\"}",
            "{\"a\": \"\\ud800\"}",
            "<xml/>",
            "client_id=1",
            &deep,
            &format!("{valid}{valid}"),
            &format!("{valid},"),
            &valid[..valid.len() - 1],
        ];
        for body in malformed {
            let response = tester.send(operation, &target, json_body(&bearer, body), body);
            assert_eq!(response.json["error"]["code"], "malformed_body", "{body}");
        }
        for body in [&b"\xff\xfe{}"[..], b"{\"client_id\": \"\xc3\x28\"}", b"\0", b"\x1f\x8b\x08\0"] {
            let sent = Sent { body, ..json_body(&bearer, "") };
            assert_eq!(tester.send(operation, &target, sent, "no UTF-8").json["error"]["code"], "malformed_body");
        }
        let long = format!("{valid}{}", " ".repeat(4097));
        assert_eq!(tester.send(operation, &target, json_body(&bearer, &long), "a long body").status, 413);
        for content_type in [None, Some("text/plain"), Some("application/xml"), Some("application/json-seq"), Some(";")]
        {
            let sent = Sent { content_type, ..json_body(&bearer, &valid) };
            assert_eq!(tester.send(operation, &target, sent, "a wrong media type").status, 415, "{content_type:?}");
        }
        for coding in ["gzip", "br", "x", "identity, gzip"] {
            let sent = Sent { coding: Some(coding), ..json_body(&bearer, &valid) };
            assert_eq!(tester.send(operation, &target, sent, "a compressed body").status, 415, "{coding}");
        }
    }
}
