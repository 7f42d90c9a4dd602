//! The page of the API, in a real browser.

use std::time::Duration;

use serde_json::Value;
use slipgate_token_issuer::http::{ErrorCode, REGISTRATION_FIELDS, REQUEST_FIELDS, ROUTES};

use super::program::{Program, TestFolder};
use crate::browser::Browser;

#[test]
fn page_shows_the_api_in_a_browser_from_this_service_alone() {
    let folder = TestFolder::new();
    let program = Program::start(folder.complete(&[]));
    let Some(mut browser) = Browser::open(&folder.path.join("profile"), &program.url("/docs")) else { return };
    browser.until("schemas", |text| text.contains("TokenRequest"));
    let (paths, schemas) = (browser.text("paths"), browser.text("schemas"));
    for (path, method) in ROUTES {
        let title = format!("{} {path}", method.to_uppercase());
        assert!(paths.contains(&title), "{title} is missing: {paths}");
    }
    for name in REQUEST_FIELDS.into_iter().chain(REGISTRATION_FIELDS).chain(ErrorCode::ALL.map(ErrorCode::name)) {
        assert!(schemas.contains(name) || paths.contains(name), "{name} is missing");
    }
    assert!(browser.text("summary").contains("openapi.json"));
    // Each resource came from the service, and the policy of the page blocked none.
    let loaded = browser.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name).join(' ')");
    let (loaded, own) = (loaded.as_str().unwrap(), program.url("/"));
    assert!(loaded.split(' ').all(|url| url.starts_with(&own)), "{loaded}");
    for file in ["/docs.js", "/docs.css", "/openapi.json"] {
        assert!(loaded.contains(&program.url(file)), "{loaded}");
    }
    assert_eq!(browser.evaluate("getComputedStyle(document.body).fontFamily === '' ? 'none' : 'styled'"), "styled");
    let blocked = browser.problems();
    assert!(blocked.is_empty(), "{blocked:?}");
    // The policy does block others: an image of another origin is not loaded.
    browser.evaluate("{ const other = new Image(); other.src = 'http://127.0.0.1:1/x.png'; '' }");
    let is_blocked = |entry: &Value| entry["text"].as_str().unwrap().contains("Content Security Policy");
    let reported = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        browser.problems().iter().any(is_blocked)
    });
    assert!(reported, "the browser did not block it");
}
