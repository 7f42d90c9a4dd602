//! Each knob and key of the page with the world of cubes, its curves and its figures, in a real browser.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::browser::Browser;
use super::cubes::Demo;

/// The longest wait for something that happens within seconds, unless the machine is busy.
const MAX_WAIT: Duration = Duration::from_secs(90);
/// The panes of clients.
const CLIENTS: [usize; 5] = [1, 2, 3, 4, 5];
/// The panes of clients that show states, which can come too late. A prediction cannot starve.
const SHOWING_STATES: [usize; 4] = [1, 2, 4, 5];

/// A running demo and its page.
struct Page {
    browser: Browser,
    profile: PathBuf,
    _demo: Demo,
}

impl Page {
    /// Starts a demo on a good path. Returns its page once it shows figures; `None` without a browser.
    fn open(test: &str) -> Option<Self> {
        let profile = std::env::temp_dir().join(format!("slipgate-{test}-{}", std::process::id()));
        let mut demo = Demo::start(&["--for", "10m", "--loss", "0", "--latency", "20ms", "--jitter", "0ms"]);
        let url = demo.line()["page"].as_str().unwrap().to_owned();
        let browser = Browser::open(&profile, &url)?;
        demo.drop_lines();
        let mut page = Self { browser, profile, _demo: demo };
        let record = "const send = fetch; window.posted = [];
            window.fetch = (path, options) => {
                if (options?.method === 'POST') window.posted.push(`${path} ${options.body}`);
                return send(path, options);
            };";
        page.browser.evaluate(record);
        page.until("figures", |page| page.numbers("error", CLIENTS).iter().all(Option::is_some).then_some(()));
        Some(page)
    }

    /// Returns the value of a promise.
    fn resolve(&mut self, promise: &str) -> Value {
        let options = json!({"expression": promise, "awaitPromise": true, "returnByValue": true});
        self.browser.call("Runtime.evaluate", &options)["result"]["value"].clone()
    }

    /// Waits until something has happened, and returns it.
    fn until<T>(&mut self, what: &str, mut happened: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = happened(self) {
                return found;
            }
            assert!(start.elapsed() < MAX_WAIT, "{what}: {:?}", self.all_figures());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns a figure below a pane: centimetres, milliseconds, percent or kbit/s.
    fn number(&mut self, figure: &str, pane: usize) -> Option<f64> {
        let text = self.browser.text(&format!("{figure}-{pane}")).replace('−', "-");
        let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
        let scale = match unit {
            "m" => 100.0,
            "mm" => 0.1,
            _ => 1.0,
        };
        number.parse::<f64>().ok().map(|number| number * scale)
    }

    fn numbers<const N: usize>(&mut self, figure: &str, panes: [usize; N]) -> [Option<f64>; N] {
        panes.map(|pane| self.number(figure, pane))
    }

    fn all_figures(&mut self) -> Value {
        self.browser.evaluate("[...document.querySelectorAll('dd')].map(figure => figure.textContent).join('; ')")
    }

    /// Moves a knob, as a person does. Waits until the server has it, and has left the others as they are.
    fn turn_knob(&mut self, name: &str, value: u32) {
        let mut knobs = self.knobs();
        assert_ne!(knobs[name].as_f64(), Some(value.into()), "{name} is something else before");
        self.browser.evaluate(&format!(
            "(knob => {{
                knob.focus();
                knob.value = {value};
                ['input', 'change'].forEach(type => knob.dispatchEvent(new Event(type, {{ bubbles: true }})));
            }})(document.getElementById('knobs').elements.{name})"
        ));
        knobs[name] = json!(value);
        self.until(&format!("{name} is {value}"), |page| {
            let is_set = |(name, value): (&String, &Value)| knobs[name].as_f64() == value.as_f64();
            page.knobs().as_object().unwrap().iter().all(is_set).then_some(())
        });
    }

    fn knobs(&mut self) -> Value {
        self.resolve("fetch('figures').then(response => response.json()).then(figures => figures.knobs)")
    }

    /// Returns the places of the cubes in a pane: x and z of each one.
    fn places(&mut self, pane: usize) -> Vec<[f64; 2]> {
        let places = self.resolve(&format!(
            "import('./draw.js').then(draw => fetch('frame').then(response => response.arrayBuffer())
                .then(frame => draw.readFrame(frame)[{pane}].map(cube => [cube.x, cube.z])))"
        ));
        serde_json::from_value(places).unwrap_or_default()
    }

    /// Returns how many cubes are within this distance of the own one at the server, in metres.
    fn near(&mut self, distance: f64) -> usize {
        let places = self.places(0);
        let Some(([x, z], others)) = places.split_first() else { return 0 };
        others.iter().filter(|[other_x, other_z]| (other_x - x).hypot(other_z - z) < distance).count()
    }

    /// Presses a key, which has this bit in what the page sends, until something has happened.
    fn press_until(&mut self, letter: char, bit: u32, mut happened: impl FnMut(&mut Self) -> bool) {
        self.browser.evaluate("window.posted = []");
        let key = |kind| {
            let (code, key) = (format!("Key{letter}"), letter.to_ascii_lowercase().to_string());
            json!({"type": kind, "code": code, "key": key, "windowsVirtualKeyCode": u32::from(letter)})
        };
        self.browser.call("Input.dispatchKeyEvent", &key("keyDown"));
        self.until(&format!("key {letter}"), |page| happened(page).then_some(()));
        self.browser.call("Input.dispatchKeyEvent", &key("keyUp"));
        let posted = self.browser.evaluate("[...new Set(window.posted)].join()");
        assert_eq!(posted, format!("keys {bit},keys 0"), "key {letter}");
    }

    /// Presses a key until the own cube is on this side, at the server and where it is predicted: of the middle along
    /// an axis, 0 for x and 1 for z, by 2 m.
    fn move_to(&mut self, letter: char, bit: u32, axis: usize, side: f64) {
        self.press_until(letter, bit, |page| {
            [0, 3].into_iter().all(|pane| page.places(pane).first().is_some_and(|own| own[axis] * side > 2.0))
        });
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// Returns whether a figure is shown and below a limit.
fn below(figure: Option<f64>, most: f64) -> bool {
    figure.is_some_and(|figure| figure < most)
}

/// Returns whether a figure is larger than before by this much.
fn above(now: Option<f64>, before: Option<f64>, much: f64) -> bool {
    now.zip(before).is_some_and(|(now, before)| now > before + much)
}

#[test]
fn page_obeys_each_key() {
    let Some(mut page) = Page::open("keys") else { return };
    // Each key starts on the other side.
    for (letter, bit, axis, side) in
        [('W', 1, 1, -1.0), ('S', 2, 1, 1.0), ('W', 1, 1, -1.0), ('A', 4, 0, -1.0), ('D', 8, 0, 1.0)]
    {
        page.move_to(letter, bit, axis, side);
    }
    // Cubes are 3 m apart at first: few are near unless they are attracted.
    let before = page.near(2.0);
    page.press_until('G', 16, |page| page.near(2.0) >= before.max(1) + 3);
    let attracted = page.near(2.0);
    page.press_until('H', 32, |page| page.near(2.0) * 2 <= attracted);
}

#[test]
fn page_obeys_each_knob_and_shows_what_losses_do() {
    let Some(mut page) = Page::open("knobs") else { return };
    // The curve below each pane moves.
    let curves = |page: &mut Page| -> Vec<String> {
        let images = "[...document.querySelectorAll('canvas.curve')].map(canvas => canvas.toDataURL())";
        serde_json::from_value(page.resolve(images)).unwrap()
    };
    let before = curves(&mut page);
    assert_eq!(before.len(), CLIENTS.len());
    page.until("curves", |page| curves(page).iter().zip(&before).all(|(now, before)| now != before).then_some(()));

    // Nothing is lost, and the figures of the last five seconds say so.
    let (starved, jumps) = page.until("figures without loss", |page| {
        let (starved, jumps) = (page.numbers("starved", SHOWING_STATES), page.numbers("jump", SHOWING_STATES));
        let is_good = |figures: [Option<f64>; 4], most: f64| figures.into_iter().all(|figure| below(figure, most));
        (is_good(starved, 15.0) && is_good(jumps, 6.0)).then_some((starved, jumps))
    });
    let own_jump = page.number("jump", 3);
    assert_eq!(page.browser.text("starved-3"), "0.0 %", "a prediction does not starve");
    page.turn_knob("loss", 60);
    page.turn_knob("runs", 500);
    let texts = "[...document.querySelectorAll('#knobs output')].map(text => text.textContent).join()";
    page.until("texts", |page| (page.browser.evaluate(texts) == "60 %,500 ms,20 ms,0 ms").then_some(()));
    page.until("figures under loss", |page| {
        let mut all_starved = page.numbers("starved", SHOWING_STATES).into_iter().zip(starved);
        let mut all_jump = page.numbers("jump", SHOWING_STATES).into_iter().zip(jumps);
        let is_worse =
            all_starved.all(|(now, before)| above(now, before, 20.0)) && all_jump.all(|(now, before)| now > before);
        (is_worse && page.number("jump", 3) != own_jump).then_some(())
    });
    page.turn_knob("loss", 5);

    // Long runs of losses leave a figure empty for a moment.
    let delay = page.until("delay before", |page| page.number("delay", 2));
    page.turn_knob("latency", 250);
    page.until("delay", |page| page.number("delay", 2).filter(|now| *now > delay.max(250.0)));
    page.turn_knob("jitter", 100);

    // More states take more bytes, also on a busy machine that does not send 60 a second. The figures are of the last
    // five seconds: those of other knobs must be over.
    page.turn_knob("rate", 10);
    std::thread::sleep(Duration::from_secs(6));
    let rate = page.until("rate before", |page| page.number("rate", 4));
    page.turn_knob("rate", 60);
    page.until("rate", |page| page.number("rate", 4).filter(|now| now * 0.7 > rate && rate > 1.0));
    page.turn_knob("objects", 34);
    page.until("objects", |page| (0..6).all(|pane| page.places(pane).len() == 34).then_some(()));
}
