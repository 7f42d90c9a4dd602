//! The page with live charts, in a real browser.

use std::time::{Duration, Instant};

use super::admin::admin_of;
use super::client::TestClient;
use super::program::TestFolder;
use crate::browser::{Browser, SCREENSHOT};

#[test]
fn page_shows_live_values_in_a_browser() {
    let folder = TestFolder::new();
    let server = folder.start(&["--admin", "127.0.0.1:0", "--drain", "1h"]);
    let admin = admin_of(&server);
    let Some(mut browser) = Browser::open(&folder.path("profile"), &format!("http://{admin}/")) else { return };
    browser.until("state", |text| text == "ready");
    browser.until("clients-0", |text| text.trim() == "0");
    let mut client = TestClient::join(1, server.address());
    let start = Instant::now();
    let seconds = if std::env::var_os(SCREENSHOT).is_some() { 25 } else { 3 };
    let mut number = 0_u32;
    while start.elapsed() < Duration::from_secs(seconds) {
        number += 1;
        client.send(&vec![7; 1 + (number as usize * 7) % 900]);
        client.turn();
        std::thread::sleep(Duration::from_millis(5 + u64::from(number / 200 % 3) * 5));
    }
    browser.until("clients-0", |text| text.trim() == "1");
    browser.until("datagrams-0", |text| text.len() > 2 && !text.starts_with('0') && !text.starts_with('–'));
    browser.until("turn-0", |text| text.ends_with("ms"));
    assert_eq!(browser.text("problem"), "", "the policy of the page blocks a part of it");
    browser.save_screenshot();
    server.signal("-TERM");
    browser.until("state", |text| text == "draining");
    client.leave();
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    browser.until("state", |text| text == "no connection");
}
