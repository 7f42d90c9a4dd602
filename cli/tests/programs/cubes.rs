//! The demo with the world of cubes: its figures, its exit status, and its page in a real browser.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::browser::{Browser, SCREENSHOT};

/// A running demo with its lines of JSON.
pub(super) struct Demo {
    child: Child,
    lines: Box<dyn BufRead + Send>,
}

impl Demo {
    pub(super) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slipgate"));
        command.args(["demo", "--world", "cubes", "--json"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Box::new(BufReader::new(child.stdout.take().unwrap()));
        Self { child, lines }
    }

    pub(super) fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
    }

    /// Drops all further lines: a full pipe would stop the demo.
    pub(super) fn drop_lines(&mut self) {
        let lines = std::mem::replace(&mut self.lines, Box::new(std::io::empty()));
        std::thread::spawn(move || lines.lines().map_while(Result::ok).count());
    }

    /// Waits for the end. Returns the last line, the exit code and the text on stderr.
    fn end(mut self) -> (Value, Option<i32>, String) {
        let lines: Vec<String> = self.lines.by_ref().lines().map(Result::unwrap).collect();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let last = lines.last().map_or(Value::Null, |line| serde_json::from_str(line).unwrap());
        (last, self.child.wait().unwrap().code(), errors)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the demo for this time. Returns its last line, or the reason if it does not succeed.
fn run_for(time: &str) -> Result<Value, String> {
    let mut demo = Demo::start(&["--for", time, "--no-page"]);
    let start = demo.line();
    assert_eq!((&start["event"], &start["page"]), (&json!("start"), &Value::Null), "{start}");
    assert_eq!(start["knobs"]["loss"], 13.0, "{start}");
    let (summary, code, errors) = demo.end();
    let has_succeeded = (code, summary["ok"].as_bool()) == (Some(0), Some(true));
    if has_succeeded { Ok(summary) } else { Err(format!("{code:?} {errors}\n{summary:#}")) }
}

#[test]
fn clients_of_ours_err_less_than_those_of_the_thesis() {
    // A busy machine needs longer until enough was compared.
    let summary = run_for("10s").or_else(|_| run_for("30s")).or_else(|_| run_for("90s")).unwrap();
    println!("{summary:#}");
    let panes = summary["panes"].as_object().unwrap();
    assert_eq!(panes.len(), 5, "{summary:#}");
    for (name, pane) in panes {
        assert_eq!(pane["traffic"]["unreadable"], 0, "{name}");
        assert!(pane["figures"]["frames"].as_u64().unwrap() > 60, "{name}: {pane}");
        assert!(pane["traffic"]["kilobits"].as_f64().unwrap() > 1.0, "{name}: {pane}");
    }
    // The own cube moves ahead of the server, the others behind it.
    let delay = |name: &str| panes[name]["figures"]["delay"].as_f64().unwrap();
    assert!(delay("slipgate-sync, own cube predicted") < 0.0 && delay("slipgate-sync, states") > 0.0, "{summary:#}");
}

#[test]
fn demo_without_a_comparison_fails() {
    // A demo of a millisecond compares nothing, unless the machine makes it much longer.
    let start = Instant::now();
    loop {
        let mut demo = Demo::start(&["--for", "1ms", "--no-page"]);
        assert_eq!(demo.line()["event"], "start");
        let (summary, code, errors) = demo.end();
        assert_eq!(code == Some(0), summary["ok"] == true, "{code:?} {errors}\n{summary:#}");
        let panes = summary["panes"].as_object().unwrap();
        let is_idle = panes.values().any(|pane| pane["figures"]["compared"].as_u64().unwrap() < 30);
        if is_idle {
            assert!(code == Some(1) && errors.contains("and 30 are needed"), "{code:?} {errors}\n{summary:#}");
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{summary:#}");
    }
}

#[test]
fn figures_without_a_comparison_are_null() {
    let mut demo = Demo::start(&["--for", "10m", "--no-page", "--loss", "0"]);
    assert_eq!(demo.line()["knobs"]["loss"], 0.0);
    // The first line comes after a second, and comparisons start two seconds after the first frame.
    let first = demo.line();
    for (name, pane) in first["panes"].as_object().unwrap() {
        let figures = &pane["figures"];
        let is_compared = figures["compared"].as_u64().unwrap() > 0;
        assert_eq!(figures["total_p99"].is_f64(), is_compared, "{name}: {figures}");
        assert_eq!(figures["error_p99"].is_null(), !is_compared, "{name}: {figures}");
    }
}

#[test]
fn wrong_flags_are_refused() {
    for (arguments, message) in [
        (&["--rate", "25"][..], "states a second"),
        (&["--loss", "61"], "a loss of 0 to 60 %"),
        (&["--latency", "2s"], "one-way delay"),
        (&["--clients", "3"], "cannot be used with"),
    ] {
        let (_, code, errors) = Demo::start(arguments).end();
        assert!(code == Some(2) && errors.contains(message), "{arguments:?}: {code:?} {errors}");
    }
}

/// Sends a request and returns the response.
fn request(address: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

#[test]
fn page_is_for_its_own_host_and_path_only() {
    let mut demo = Demo::start(&["--for", "10m"]);
    let start = demo.line();
    let page = start["page"].as_str().unwrap().strip_prefix("http://").unwrap();
    let (address, path) = page.split_once('/').unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{page}");
    let get = |path: &str, host: &str| {
        request(address, &format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    let response = get(path, address);
    assert!(response.starts_with("HTTP/1.1 200") && response.contains("default-src 'none'"), "{response}");
    assert!(!response.contains("http://") && !response.contains("https://"), "no outside resource: {response}");
    assert!(get(path, "evil.example").starts_with("HTTP/1.1 403"));
    assert!(get("", address).starts_with("HTTP/1.1 404"));
    assert!(get("0123456789abcdef0123456789abcdef/", address).starts_with("HTTP/1.1 404"));
    let post = |body: &str| {
        let head = format!("POST /{path}knobs HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        let length = body.len();
        request(address, &format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"))
    };
    for body in ["", "{}", "[1]", r#"{"objects":104,"rate":20,"loss":13,"runs":0,"latency":50,"jitter":10,"x":1}"#] {
        assert!(post(body).starts_with("HTTP/1.1 4"), "{body}");
    }
    let refused = post(r#"{"objects":9999,"rate":20,"loss":13,"runs":0,"latency":50,"jitter":10}"#);
    assert!(refused.starts_with("HTTP/1.1 422") && refused.contains("4 to 1001 objects"), "{refused}");
    assert!(post(&"x".repeat(2000)).starts_with("HTTP/1.1 413"));
}

#[test]
fn page_shows_all_panes_and_obeys_knobs_and_keys() {
    let profile = std::env::temp_dir().join(format!("slipgate-cubes-{}", std::process::id()));
    let mut demo = Demo::start(&["--for", "10m"]);
    let page = demo.line()["page"].as_str().unwrap().to_owned();
    let Some(mut browser) = Browser::open(&profile, &page) else { return };
    browser.until("status", |text| text.starts_with("live"));
    for pane in 1..6 {
        browser.until(&format!("error-{pane}"), |text| text.ends_with("cm") || text.ends_with('m'));
        browser.until(&format!("rate-{pane}"), |text| text.parse::<f64>().is_ok_and(|rate| rate > 1.0));
    }
    browser.until("delay-3", |text| text.starts_with('−') && text.ends_with("ms"));
    if std::env::var_os(SCREENSHOT).is_some() {
        std::thread::sleep(Duration::from_secs(25));
        browser.save_screenshot();
    }
    // The captions are beside the titles, whole and in one line, in a window of 1,280 pixels.
    let captions = "[innerWidth, ...[...document.querySelectorAll('article > header')].map(header => {
        const caption = header.lastElementChild;
        return header.offsetHeight < 30 && caption.scrollWidth <= caption.clientWidth;
    })].join()";
    let all_fit = "1280".to_owned() + &",true".repeat(6);
    assert_eq!(browser.evaluate(captions).as_str(), Some(&all_fit[..]));
    // Each canvas with cubes has many colours: the floor, the cubes and their sides.
    let colours = "[...document.querySelectorAll('canvas.world')].map(canvas => {
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const found = new Set();
        for (let i = 0; i < data.length; i += 4) found.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
        return found.size;
    }).join()";
    let counts = browser.evaluate(colours);
    let counts: Vec<u32> = counts.as_str().unwrap().split(',').map(|count| count.parse().unwrap()).collect();
    assert!(counts.len() == 6 && counts.iter().all(|count| *count > 40), "{counts:?}");

    // A preset changes the path: the knobs that the server reports are those of the button.
    browser.evaluate("document.querySelectorAll('#presets button')[2].click()");
    let loss = "fetch('figures').then(r => r.json()).then(f => document.title = `loss ${f.knobs.loss}`)";
    browser.evaluate(loss);
    let start = Instant::now();
    while browser.evaluate("document.title") != "loss 37" {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", browser.evaluate("document.title"));
        browser.evaluate(loss);
        std::thread::sleep(Duration::from_millis(100));
    }

    // A line of JSON has the new knobs.
    let knobs = std::iter::repeat_with(|| demo.line()).take(600).find(|line| line["event"] == "knobs").unwrap();
    assert_eq!(knobs["knobs"]["loss"], 37.0, "{knobs}");

    // A key moves the own cube to the left, on the server too.
    let key = |kind| json!({"type": kind, "code": "KeyA", "key": "a", "windowsVirtualKeyCode": 65});
    browser.call("Input.dispatchKeyEvent", &key("keyDown"));
    let place = "import('./draw.js').then(draw => fetch('frame').then(r => r.arrayBuffer())
        .then(b => document.title = draw.readFrame(b).map(pane => pane[0].x.toFixed(2)).join()))";
    let start = Instant::now();
    loop {
        browser.evaluate(place);
        std::thread::sleep(Duration::from_millis(100));
        let places = browser.evaluate("document.title");
        let places: Vec<f64> = places.as_str().unwrap().split(',').filter_map(|place| place.parse().ok()).collect();
        if places.len() == 6 && places[0] < -12.0 && places[3] < -12.0 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{places:?}");
    }
    browser.call("Input.dispatchKeyEvent", &key("keyUp"));
    drop(browser);
    let _ = std::fs::remove_dir_all(profile);
}
