//! Runs a measure: test beds for all subjects, and rounds in which they take turns.

use std::io;
use std::rc::Rc;

use crate::cpu::Cores;
use crate::driver_socket::DriverSockets;
use crate::load::LoadGenerator;
use crate::row::Cell;
use crate::server_thread::{AllocationProbe, ServerThread};
use crate::subject::Subject;

/// The setup of a run, which all measures share.
pub struct Setup {
    /// The subjects, in the order of the columns.
    pub subjects: Vec<Subject>,
    /// The cores of servers and driver.
    pub cores: Cores,
    /// The allocation counters, if the program has them.
    pub probe: Option<AllocationProbe>,
    /// The number of rounds of each measure.
    pub rounds: usize,
    /// The length of a round.
    pub effort: Effort,
    /// The sockets of all clients.
    pub sockets: Rc<DriverSockets>,
    /// The maximum burst: the number of datagrams that a server's socket can queue.
    pub burst: usize,
}

impl Setup {
    /// Returns the same setup with other client sockets.
    #[must_use]
    pub fn with_sockets(&self, sockets: DriverSockets) -> Self {
        Self { subjects: self.subjects.clone(), sockets: Rc::new(sockets), ..*self }
    }
}

/// The length of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// For tests.
    Smoke,
    /// A first impression.
    Quick,
    /// Published figures.
    Full,
}

impl Effort {
    /// Returns the number of repetitions: the full number or a fraction of it.
    #[must_use]
    pub const fn of(self, full: usize) -> usize {
        match self {
            Self::Smoke => full.div_ceil(1000),
            Self::Quick => full.div_ceil(8),
            Self::Full => full,
        }
    }
}

/// A subject with its server and its clients.
pub struct TestBed {
    /// The subject.
    pub subject: Subject,
    /// Its server.
    pub server_thread: ServerThread,
    /// Its clients.
    pub load: LoadGenerator,
    /// The number of clients.
    pub clients: usize,
}

/// The test beds of all subjects, in the order of the columns; a missing one has a reason.
pub struct Runner {
    test_beds: Vec<Result<TestBed, String>>,
    rounds: usize,
}

impl TestBed {
    /// Starts a server with this number of slots and no clients.
    ///
    /// # Errors
    /// The error of the system if the server or the sockets cannot be created.
    pub fn open(setup: &Setup, subject: Subject, clients: usize) -> io::Result<Self> {
        let server_thread = ServerThread::start(&subject, clients, setup.cores, setup.probe)?;
        let load = LoadGenerator::new(&server_thread, subject.protocol, clients, &setup.sockets);
        Ok(Self { subject, server_thread, load, clients })
    }

    /// Starts a server with this number of connected clients.
    ///
    /// # Errors
    /// The error of the system if the server or the sockets cannot be created; `Other` if clients do not connect.
    pub fn full(setup: &Setup, subject: Subject, clients: usize) -> io::Result<Self> {
        let mut test_bed = Self::open(setup, subject, clients)?;
        test_bed.load.connect_clients(clients, &test_bed.server_thread)?;
        Ok(test_bed)
    }
}

impl Runner {
    /// Creates test beds with this number of connected clients each.
    #[must_use]
    pub fn full(setup: &Setup, clients: usize) -> Self {
        Self::with(setup, clients, |subject| TestBed::full(setup, subject, clients))
    }

    /// Creates test beds with this number of slots each, and no clients.
    #[must_use]
    pub fn empty(setup: &Setup, clients: usize) -> Self {
        Self::with(setup, clients, |subject| TestBed::open(setup, subject, clients))
    }

    fn with(setup: &Setup, clients: usize, open: impl Fn(Subject) -> io::Result<TestBed>) -> Self {
        let test_bed = |subject: &Subject| match subject.blank_reason(clients) {
            Some(why) => Err(why.to_owned()),
            None => open(*subject).map_err(|error| error.to_string()),
        };
        Self { test_beds: setup.subjects.iter().map(test_bed).collect(), rounds: setup.rounds }
    }

    /// Runs the turns of all test beds: one to warm up, then one in each round, in the order of the columns. A turn
    /// returns a figure for each row.
    pub fn play<const FIGURES: usize>(
        &mut self,
        mut turn: impl FnMut(&mut TestBed) -> io::Result<[f64; FIGURES]>,
    ) -> [Vec<Cell>; FIGURES] {
        let mut rows = [(); FIGURES].map(|()| vec![Vec::with_capacity(self.rounds); self.test_beds.len()]);
        let mut blank_reasons: Vec<Option<String>> =
            self.test_beds.iter().map(|test_bed| test_bed.as_ref().err().cloned()).collect();
        for round in 0..=self.rounds {
            for (index, (test_bed, blank_reason)) in self.test_beds.iter_mut().zip(&mut blank_reasons).enumerate() {
                let (Ok(test_bed), None) = (test_bed, &blank_reason) else { continue };
                match turn(test_bed) {
                    Ok(_) if round == 0 => {}
                    Ok(figures) => {
                        for (column, figure) in rows.iter_mut().filter_map(|row| row.get_mut(index)).zip(figures) {
                            column.push(figure);
                        }
                    }
                    Err(error) => *blank_reason = Some(error.to_string()),
                }
            }
        }
        rows.map(|row| cells(row, &blank_reasons))
    }

    /// Returns one figure for each subject, without rounds. The table marks such rows.
    pub fn once(&mut self, mut turn: impl FnMut(&mut TestBed) -> io::Result<f64>) -> Vec<Cell> {
        let one = |test_bed: &mut Result<TestBed, String>| match test_bed {
            Ok(test_bed) => {
                turn(test_bed).map_or_else(|error| Cell::Blank(error.to_string()), |it| Cell::Rounds(vec![it]))
            }
            Err(why) => Cell::Blank(why.clone()),
        };
        self.test_beds.iter_mut().map(one).collect()
    }
}

fn cells(rounds: Vec<Vec<f64>>, blank_reasons: &[Option<String>]) -> Vec<Cell> {
    let cell = |(rounds, blank_reason): (Vec<f64>, &Option<String>)| match blank_reason {
        None => Cell::Rounds(rounds),
        Some(why) => Cell::Blank(why.clone()),
    };
    rounds.into_iter().zip(blank_reasons).map(cell).collect()
}
