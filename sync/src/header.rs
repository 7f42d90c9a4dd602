//! The first bits of a state message: its tick, and what else the server says to this client (§6.3).

use crate::bits::{BitReader, BitWriter};
use crate::inputs::{InputReport, nearest};
use crate::read_error::StateReadError;

/// The contents of a state message beside the states of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateHeader {
    /// The server's tick that the message describes.
    pub tick: u32,
    /// How early the inputs of this client arrive, in the first message of a tick.
    pub report: Option<InputReport>,
    /// Whether it is the first message of this tick for this client.
    pub is_first: bool,
}

/// The header of a message, as it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderRecord {
    pub(crate) tick: u32,
    /// How often the server has sent everything again, modulo 16, if the message has all bits of the tick.
    pub(crate) wide: Option<u8>,
    pub(crate) report: Option<InputReport>,
    pub(crate) is_first: bool,
}

impl HeaderRecord {
    /// The bits of the longest header.
    pub(crate) const MAX_BITS: usize = {
        let report = Some(InputReport { newest: 0, margin_quarters: 0, epoch: 1 });
        Self { tick: 0, wide: Some(0), report, is_first: true }.bits()
    };

    const fn has_parts(&self) -> bool {
        self.wide.is_some() || self.report.is_some() || !self.is_first
    }

    pub(crate) const fn bits(&self) -> usize {
        let wide = if self.wide.is_some() { 16 + 4 } else { 0 };
        let report = match self.report {
            None => 0,
            Some(InputReport { epoch: 0, .. }) => 16 + 8 + 1,
            Some(_) => 16 + 8 + 1 + 4,
        };
        16 + 1 + if self.has_parts() { 3 + wide + report } else { 0 }
    }

    pub(crate) fn write(&self, writer: &mut BitWriter<'_>) {
        let (wide, report) = (self.wide, self.report);
        writer.write(self.tick & 0xffff, 16);
        writer.write(u32::from(self.has_parts()), 1);
        if !self.has_parts() {
            return;
        }
        writer.write(u32::from(!self.is_first), 1);
        writer.write(u32::from(wide.is_some()), 1);
        if let Some(resyncs) = wide {
            writer.write(self.tick >> 16, 16);
            writer.write(resyncs.into(), 4);
        }
        writer.write(u32::from(report.is_some()), 1);
        if let Some(report) = report {
            writer.write(report.newest & 0xffff, 16);
            writer.write(u32::from(report.margin_quarters as u8), 8);
            writer.write(u32::from(report.epoch > 0), 1);
            if report.epoch > 0 {
                writer.write(report.epoch.into(), 4);
            }
        }
    }

    /// Reads what [`write`](Self::write) wrote. `newest` is the newest tick of a message before.
    pub(crate) fn read(reader: &mut BitReader<'_>, newest: Option<u32>) -> Result<Self, StateReadError> {
        let low = reader.read(16)?;
        let has_more = reader.read_bit()?;
        let is_first = !(has_more && reader.read_bit()?);
        let mut wide = None;
        let mut tick = newest.map(|newest| nearest(low, newest));
        if has_more && reader.read_bit()? {
            tick = Some(reader.read(16)? << 16 | low);
            wide = Some(reader.read(4)? as u8);
        }
        let has_report = has_more && reader.read_bit()?;
        if has_more && is_first && wide.is_none() && !has_report {
            return Err(StateReadError::OutOfRange);
        }
        let tick = tick.filter(|tick| *tick > 0 && tick & 0xffff == low).ok_or(StateReadError::UnknownTick)?;
        let report = if has_report { Some(read_report(reader, tick)?) } else { None };
        Ok(Self { tick, wide, report, is_first })
    }
}

/// Reads the report of a message of this tick.
fn read_report(reader: &mut BitReader<'_>, tick: u32) -> Result<InputReport, StateReadError> {
    let newest = nearest(reader.read(16)?, tick);
    let margin_quarters = reader.read(8)? as u8 as i8;
    let has_epoch = reader.read_bit()?;
    let epoch = if has_epoch { reader.read(4)? as u8 } else { 0 };
    if has_epoch && epoch == 0 {
        return Err(StateReadError::OutOfRange);
    }
    Ok(InputReport { newest, margin_quarters, epoch })
}
