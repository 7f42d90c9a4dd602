//! A program in a pseudo-terminal, and a terminal emulator that reads its screen.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// The longest time until a program must have done something, with hundreds of players on a busy machine, too.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(180);

/// A running program and its terminal.
pub(crate) struct PseudoTerminal {
    child: Child,
    controller: File,
    /// The program's end, kept open to read its modes.
    terminal: OwnedFd,
    output: Receiver<Vec<u8>>,
    emulator: vt100::Parser,
    raw: Vec<u8>,
}

impl PseudoTerminal {
    /// Starts a program in a terminal of this size.
    pub(crate) fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let path = ptsname(&controller, Vec::new()).unwrap();
        let open = || rustix::fs::open(&path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let terminal = open();
        tcsetwinsize(&terminal, size(columns, rows)).unwrap();
        let child = command
            .env("TERM", "xterm-256color")
            .stdin(Stdio::from(open()))
            .stdout(Stdio::from(open()))
            .stderr(Stdio::from(open()))
            .spawn()
            .unwrap();
        let (controller, (chunks, output)) = (File::from(controller), channel());
        let mut reader = controller.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut buf = [0; 65536];
            while let Ok(length @ 1..) = reader.read(&mut buf) {
                if chunks.send(buf[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, controller, terminal, output, emulator: emulator(columns, rows), raw: Vec::new() }
    }

    /// Returns the process id of the program.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Types this text.
    pub(crate) fn press(&mut self, keys: &str) {
        self.controller.write_all(keys.as_bytes()).unwrap();
    }

    /// Changes the size of the terminal. Its content is lost, as in a terminal that clears the screen.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        tcsetwinsize(&self.terminal, size(columns, rows)).unwrap();
        self.emulator.screen_mut().set_size(cells(rows), cells(columns));
    }

    /// Returns the rows of the screen, without spaces at their ends.
    pub(crate) fn screen(&self) -> Vec<String> {
        let columns = self.emulator.screen().size().1.into();
        self.emulator.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect()
    }

    /// Reads what has arrived within some milliseconds. Returns the screen.
    pub(crate) fn screen_now(&mut self) -> Vec<String> {
        self.read(Duration::from_millis(5));
        self.screen()
    }

    /// Returns everything that the program has written.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }

    /// Returns whether the terminal is as before: its own screen, a cursor, and lines with echo.
    pub(crate) fn is_restored(&self) -> bool {
        let screen = self.emulator.screen();
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        let has_lines = modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        !screen.alternate_screen() && !screen.hide_cursor() && has_lines
    }

    /// Reads output until the screen fulfils a condition. Returns the screen.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, what: &str, is_reached: impl Fn(&[String]) -> bool) -> Vec<String> {
        let end = Instant::now() + MAX_WAIT;
        loop {
            let screen = self.screen();
            if is_reached(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "no {what} within {MAX_WAIT:?}:\n{}", screen.join("\n"));
            self.read(Duration::from_millis(50));
        }
    }

    /// Reads output until the screen has this text. Returns the screen.
    #[track_caller]
    pub(crate) fn wait_for_text(&mut self, text: &str) -> Vec<String> {
        self.wait_for(text, |screen| screen.iter().any(|row| row.contains(text)))
    }

    /// Reads output until the program ends.
    #[track_caller]
    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        let end = Instant::now() + MAX_WAIT;
        loop {
            self.read(Duration::from_millis(50));
            if let Some(status) = self.child.try_wait().unwrap() {
                // The last output may still be on its way.
                while self.read(Duration::from_millis(50)) {}
                return status;
            }
            assert!(Instant::now() < end, "the program does not end:\n{}", self.screen().join("\n"));
        }
    }

    /// Reads what arrives within this time. Returns whether anything did.
    fn read(&mut self, time: Duration) -> bool {
        match self.output.recv_timeout(time) {
            Ok(bytes) => {
                self.emulator.process(&bytes);
                self.raw.extend(bytes);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(time);
                false
            }
        }
    }
}

impl Drop for PseudoTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn emulator(columns: u16, rows: u16) -> vt100::Parser {
    vt100::Parser::new(cells(rows), cells(columns), 0)
}

fn cells(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap()
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
