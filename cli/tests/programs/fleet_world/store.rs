//! A Redis server without a file.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use super::until;

/// A Redis, or Valkey, that can be killed and started again on its port.
pub(crate) struct Store {
    program: &'static str,
    port: u16,
    child: Child,
}

impl Store {
    /// Starts a server, or returns `None` if none is installed.
    pub(crate) fn start() -> Option<Self> {
        let is_installed = |program: &&str| {
            Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        let program = ["redis-server", "valkey-server"].into_iter().find(is_installed)?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Some(Self { program, port, child: spawn(program, port) })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        self.child = spawn(self.program, self.port);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &str, port: u16) -> Child {
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()]);
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    until("listening", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    child
}
