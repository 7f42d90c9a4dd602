//! Bytes of one connection to the admin service, without a token and with one: each response is complete HTTP with the
//! security headers; without the token only health and readiness are shown, and nothing drains the server.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use slipgate_admin::fuzzing::AdminRequests;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// The most bytes of a response: the page's script, with its head.
const MAX_RESPONSE: usize = 64 * 1024;

thread_local! {
    static OPEN: RefCell<AdminRequests> = RefCell::new(answering(None));
    static PRIVATE: RefCell<AdminRequests> = RefCell::new(answering(Some(TOKEN)));
}

/// Returns a service that responds: without responses the checks would check nothing.
fn answering(token: Option<&str>) -> AdminRequests {
    let mut service = AdminRequests::new(token);
    let request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    assert_eq!(check(request, &service.exchange(request)), Some(200));
    service
}

/// Returns the status of a response that the routes wrote, `None` of one below them.
fn check(request: &[u8], response: &[u8]) -> Option<u16> {
    assert!(response.len() <= MAX_RESPONSE);
    let text = String::from_utf8_lossy(response);
    // The client is asked for the body first (RFC 9110, section 10.1.1).
    let text = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&text);
    if text.is_empty() {
        return None;
    }
    let status: u16 = text.strip_prefix("HTTP/1.").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let head = text.split("\r\n\r\n").next().unwrap().to_lowercase();
    assert!(!head.contains("access-control-"), "{head}");
    if !head.contains("content-security-policy: default-src 'none'") {
        assert!(
            [400, 414, 431].contains(&status),
            "{status} without a policy for {:?}",
            String::from_utf8_lossy(request)
        );
        return None;
    }
    assert!(status < 500 || status == 503, "{text}");
    Some(status)
}

fuzz_target!(|input: &[u8]| {
    OPEN.with_borrow_mut(|service| check(input, &service.exchange(input)));
    PRIVATE.with_borrow_mut(|service| {
        let was_draining = service.is_draining();
        let response = service.exchange(input);
        let has_token = input.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes());
        let status = check(input, &response);
        let text = String::from_utf8_lossy(&response);
        assert!(!text.contains(TOKEN));
        if !has_token {
            assert_eq!(service.is_draining(), was_draining);
            // Health has a short body, and nothing else is shown.
            assert!(status != Some(200) || text.contains(r#"{"status":"ok"}"#) || text.contains("content-length: 15"));
        }
    });
});
