//! Health, readiness, metrics and the page of the API.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::{PROTOCOL_ID, Service, agent};

/// Returns the status, the media type and the text of a response.
fn get(service: &Service, path: &str, bearer: Option<&str>) -> (u16, String, String) {
    let request = agent().get(service.url(path));
    let request = if let Some(bearer) = bearer { request.header("Authorization", bearer) } else { request };
    let mut response = request.call().unwrap();
    let media = response.headers()["content-type"].to_str().unwrap().to_owned();
    (response.status().as_u16(), media, response.body_mut().read_to_string().unwrap())
}

#[test]
fn health_and_readiness_need_no_key() {
    let service = Service::start();
    assert_eq!(get(&service, "/healthz", None).2, r#"{"status":"ok"}"#);
    let ready = get(&service, "/readyz", None);
    assert_eq!((ready.0, ready.2.as_str()), (200, r#"{"status":"ready"}"#));
}

#[test]
fn announced_stop_turns_readiness_off_and_nothing_else() {
    let service = Service::start();
    service.handle.announce_stop();
    let (status, _, body) = get(&service, "/readyz", None);
    assert_eq!((status, body.as_str()), (503, r#"{"status":"stopping"}"#));
    assert_eq!(get(&service, "/healthz", None).0, 200);
    assert_eq!(service.request_token(r#"{"client_id": 1}"#).status, 201);
    let document =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/openapi.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let statuses = &document["components"]["schemas"]["Status"]["properties"]["status"]["enum"];
    assert!(statuses.as_array().unwrap().contains(&"stopping".into()), "{statuses}");
}

#[test]
fn metrics_count_requests_by_outcome_and_key() {
    let service = Service::start();
    service.request_token(r#"{"client_id": 1}"#);
    service.request_token(r#"{"client_id": 1}"#);
    service.request_token("{");
    assert_eq!(get(&service, "/metrics", None).0, 401);
    let (status, media, text) = get(&service, "/metrics", Some(&service.bearer()));
    assert_eq!(status, 200);
    assert!(media.starts_with("application/openmetrics-text"), "{media}");
    for line in [
        r#"slipgate_issuer_requests_total{outcome="minted",key="2"} 2"#,
        r#"slipgate_issuer_requests_total{outcome="malformed_body",key="2"} 1"#,
        r#"slipgate_issuer_requests_total{outcome="unauthorized",key=""} 1"#,
        "slipgate_issuer_mint_seconds_count 2",
        r#"slipgate_issuer_servers{state="ready"} 0"#,
        r#"slipgate_issuer_slots{state="reserved"} 0"#,
        "slipgate_issuer_store_available 1",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is missing:\n{text}");
    }
    assert!(text.ends_with("# EOF\n") && !text.contains("sgk_"), "{text}");
}

#[test]
fn each_metric_is_in_the_table_of_the_api() {
    let service = Service::start();
    assert_eq!(service.request_token(r#"{"client_id": 1}"#).status, 201);
    let text = get(&service, "/metrics", Some(&service.bearer())).2;
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let families: BTreeSet<_> = types.map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/http-api.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows = rows.filter(|name| name.starts_with("slipgate_issuer_"));
    let documented: BTreeSet<_> = rows.map(|name| name.trim_end_matches("_total").to_owned()).collect();
    assert_eq!(documented, families);
    let key = format!("slipgate_issuer_sealing_key{{protocol_id=\"{PROTOCOL_ID}\",fingerprint=\"");
    assert_eq!(text.lines().filter(|line| line.starts_with(&key) && line.ends_with("\"} 1")).count(), 1, "{text}");
}

#[test]
fn page_of_the_api_loads_nothing_from_others() {
    let service = Service::start();
    let (status, media, page) = get(&service, "/docs", None);
    assert_eq!((status, media.as_str()), (200, "text/html; charset=utf-8"));
    for (path, media) in [("/docs.js", "text/javascript; charset=utf-8"), ("/docs.css", "text/css; charset=utf-8")] {
        assert!(page.contains(path), "{page}");
        let file = get(&service, path, None);
        assert_eq!((file.0, file.1.as_str()), (200, media));
        assert!(!file.2.contains("//cdn") && !file.2.contains("http"), "{path}");
    }
    assert!(!page.contains("http:") && !page.contains("https:"), "{page}");
    let policy = agent().get(service.url("/docs")).call().unwrap().headers()["content-security-policy"].clone();
    assert!(policy.to_str().unwrap().starts_with("default-src 'none'"));
}
