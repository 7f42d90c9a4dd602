//! How long a message has to be, so that no object is too large for it (§6.3).

use super::selection::{BASE_BITS, MAX_GAP_BITS, RecordForm};
use crate::header::HeaderRecord;
use crate::schema::{KindLayout, Schema};

impl Schema {
    /// Returns how many bytes a message has to have at least, so that it has room for any object, whatever changed of
    /// it: all fields of the largest kind, and up to 15 bytes around them.
    /// [`Replicator::write`](crate::Replicator::write) leaves an object out as long as it does not fit into the buffer,
    /// without an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use slipgate_sync::{Field, Schema};
    ///
    /// let mut schema = Schema::builder();
    /// let cube = schema.add(&[Field::vector([-16.0..16.0, 0.0..16.0, -16.0..16.0], 512), Field::rotation(9)]);
    /// let schema = schema.build()?;
    /// assert_eq!((schema.whole_bits(cube), schema.min_message_bytes()), (70, 24));
    /// # Ok::<(), slipgate_sync::SchemaError>(())
    /// ```
    #[must_use]
    pub fn min_message_bytes(&self) -> usize {
        let around = HeaderRecord::MAX_BITS + BASE_BITS + MAX_GAP_BITS + RecordForm::MAX_BITS;
        let largest = self.layouts().map(KindLayout::bits).max().unwrap_or(0);
        (around + largest as usize).div_ceil(8)
    }
}
