//! Everyone who takes part in a measure, each with its server and its clients, and the rounds in which they take turns.

use std::io;
use std::rc::Rc;

use crate::contestant::Contestant;
use crate::cpu::Cores;
use crate::crowd::Crowd;
use crate::port::Ports;
use crate::row::Cell;
use crate::stage::{Probe, Stage};

/// What all measures of a run have in common.
pub struct Rig {
    /// Who takes part, in the order of the columns.
    pub contestants: Vec<Contestant>,
    /// Where servers and driver run.
    pub cores: Cores,
    /// What counts memory, if something does.
    pub probe: Option<Probe>,
    /// Rounds of each measure.
    pub rounds: usize,
    /// How long a round is.
    pub effort: Effort,
    /// The sockets of all clients.
    pub ports: Rc<Ports>,
    /// Datagrams that wait in a server's socket at most: no burst is longer.
    pub burst: usize,
}

impl Rig {
    /// The same with other sockets of clients.
    #[must_use]
    pub fn with_ports(&self, ports: Ports) -> Self {
        Self { contestants: self.contestants.clone(), ports: Rc::new(ports), ..*self }
    }
}

/// How long a round is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// As short as a test's.
    Smoke,
    /// For a first look.
    Quick,
    /// For figures that are quoted.
    Full,
}

impl Effort {
    /// A number of repetitions: the full one, or its share.
    #[must_use]
    pub const fn of(self, full: usize) -> usize {
        match self {
            Self::Smoke => full.div_ceil(1000),
            Self::Quick => full.div_ceil(8),
            Self::Full => full,
        }
    }
}

/// One contestant with its server and its clients.
pub struct Corner {
    /// Who.
    pub contestant: Contestant,
    /// Its server.
    pub stage: Stage,
    /// Its clients.
    pub crowd: Crowd,
    /// How many they are.
    pub clients: usize,
}

/// All corners, in the order of the columns; an empty one has a reason.
pub struct Arena {
    corners: Vec<Result<Corner, String>>,
    rounds: usize,
}

impl Corner {
    /// A server with room for so many clients, and no client yet.
    ///
    /// # Errors
    /// When the server or the sockets cannot be had.
    pub fn open(rig: &Rig, contestant: Contestant, clients: usize) -> io::Result<Self> {
        let stage = Stage::start(&contestant, clients, rig.cores, rig.probe)?;
        let crowd = Crowd::new(&stage, contestant.speech, clients, &rig.ports);
        Ok(Self { contestant, stage, crowd, clients })
    }

    /// A server with so many connected clients.
    ///
    /// # Errors
    /// When the server or the sockets cannot be had, or some clients do not get in.
    pub fn full(rig: &Rig, contestant: Contestant, clients: usize) -> io::Result<Self> {
        let mut corner = Self::open(rig, contestant, clients)?;
        corner.crowd.admit(clients, &corner.stage)?;
        Ok(corner)
    }
}

impl Arena {
    /// Everyone with so many connected clients.
    #[must_use]
    pub fn full(rig: &Rig, clients: usize) -> Self {
        Self::with(rig, clients, |contestant| Corner::full(rig, contestant, clients))
    }

    /// Everyone with room for so many clients, and none connected.
    #[must_use]
    pub fn empty(rig: &Rig, clients: usize) -> Self {
        Self::with(rig, clients, |contestant| Corner::open(rig, contestant, clients))
    }

    fn with(rig: &Rig, clients: usize, open: impl Fn(Contestant) -> io::Result<Corner>) -> Self {
        let corner = |contestant: &Contestant| match contestant.excuse(clients) {
            Some(why) => Err(why.to_owned()),
            None => open(*contestant).map_err(|error| error.to_string()),
        };
        Self { corners: rig.contestants.iter().map(corner).collect(), rounds: rig.rounds }
    }

    /// Everyone has a turn to warm up, and then one in each round, in the order of the columns. A turn gives figures, the
    /// first for the first row, and so on.
    pub fn play<const FIGURES: usize>(
        &mut self,
        mut turn: impl FnMut(&mut Corner) -> io::Result<[f64; FIGURES]>,
    ) -> [Vec<Cell>; FIGURES] {
        let mut rows = [(); FIGURES].map(|()| vec![Vec::with_capacity(self.rounds); self.corners.len()]);
        let mut excuses: Vec<Option<String>> =
            self.corners.iter().map(|corner| corner.as_ref().err().cloned()).collect();
        for round in 0..=self.rounds {
            for (place, (corner, excuse)) in self.corners.iter_mut().zip(&mut excuses).enumerate() {
                let (Ok(corner), None) = (corner, &excuse) else { continue };
                match turn(corner) {
                    Ok(_) if round == 0 => {}
                    Ok(figures) => {
                        for (column, figure) in rows.iter_mut().filter_map(|row| row.get_mut(place)).zip(figures) {
                            column.push(figure);
                        }
                    }
                    Err(error) => *excuse = Some(error.to_string()),
                }
            }
        }
        rows.map(|row| cells(row, &excuses))
    }

    /// One figure for everyone, without rounds: the table says so.
    pub fn once(&mut self, mut turn: impl FnMut(&mut Corner) -> io::Result<f64>) -> Vec<Cell> {
        let one = |corner: &mut Result<Corner, String>| match corner {
            Ok(corner) => turn(corner).map_or_else(|error| Cell::Blank(error.to_string()), |it| Cell::Rounds(vec![it])),
            Err(why) => Cell::Blank(why.clone()),
        };
        self.corners.iter_mut().map(one).collect()
    }
}

fn cells(rounds: Vec<Vec<f64>>, excuses: &[Option<String>]) -> Vec<Cell> {
    let cell = |(rounds, excuse): (Vec<f64>, &Option<String>)| match excuse {
        None => Cell::Rounds(rounds),
        Some(why) => Cell::Blank(why.clone()),
    };
    rounds.into_iter().zip(excuses).map(cell).collect()
}
