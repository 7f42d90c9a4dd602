//! Which objects are sent first when a message has no room for all of them.

/// How the priority of an object grows in 50 ms, for each client: three times as much in 150 ms, however many commits
/// these have. Objects with the highest priority are sent first; the priority of what was sent starts again from zero.
///
/// # Examples
///
/// ```
/// use slipgate_sync::Priorities;
///
/// let rule = Priorities { at_rest: 0.2, ..Priorities::default() };
/// assert_eq!(Priorities::thesis().max_objects, 20);
/// # let _ = rule;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Priorities {
    /// Added for an object that has not changed for ten commits.
    pub at_rest: f32,
    /// Added for an object that did not change at the newest commit.
    pub still: f32,
    /// Added for an object that changed at the newest commit.
    pub moving: f32,
    /// Added for each metre of the error that a client has now. A switch or an integer that is wrong counts as 10 cm,
    /// a velocity that is wrong by 20 m/s as a metre, and an object that the client does not have as a metre, or as
    /// much as the object that is most wrong.
    pub per_metre_of_error: f32,
    /// How many units of vectors and velocities are a metre, above 0: 100 for a game in centimetres.
    pub units_per_metre: f32,
    /// The most objects of a message.
    pub max_objects: u16,
    /// Whether objects are sent that the client is known to have.
    pub repeats_known: bool,
}

impl Priorities {
    /// Returns the rule of a bachelor thesis on networked physics (Fribourg, 2018): 1 for objects at rest, 10 for still
    /// ones, 100 for moving ones, 20 objects in a message, and no knowledge of what arrived.
    #[must_use]
    pub const fn thesis() -> Self {
        Self {
            at_rest: 1.0,
            still: 10.0,
            moving: 100.0,
            per_metre_of_error: 0.0,
            units_per_metre: 1.0,
            max_objects: 20,
            repeats_known: true,
        }
    }
}

impl Default for Priorities {
    /// Returns the rule of the predicted error: an object is as urgent as it is wrong on the client's screen.
    fn default() -> Self {
        Self {
            at_rest: 1.0,
            still: 1.0,
            moving: 1.0,
            per_metre_of_error: 400.0,
            units_per_metre: 1.0,
            max_objects: u16::MAX,
            repeats_known: false,
        }
    }
}
