//! The place that waits for a value, and whether the value lies in it or in memory that is asked for.

use core::any::type_name;
use core::marker::PhantomData;
use core::mem::needs_drop;

/// What is known of a place before its value is decoded.
pub(super) struct Place {
    bytes: usize,
    /// Whether what lies there gives something back when it goes. Only such a thing can hold memory.
    owns: bool,
    /// Of its type; none where nobody tells.
    name: Option<fn() -> &'static str>,
}

struct Of<T>(PhantomData<T>);

impl<T> Of<T> {
    const INSIDE: Place = Place { bytes: size_of::<T>(), owns: needs_drop::<T>(), name: None };
    const PLACE: Place = Place { name: Some(type_name::<T>), ..Self::INSIDE };
}

impl Place {
    #[inline]
    pub(super) const fn of<T>() -> &'static Self {
        &Of::<T>::PLACE
    }

    /// What lies in an option or a newtype: its type is not told, but it needs what the whole needs.
    #[inline]
    pub(super) const fn inside<T>() -> &'static Self {
        &Of::<T>::INSIDE
    }

    /// Whether a value of this type does not lie there itself, but in a box. In doubt it does.
    ///
    /// Boxes are not announced: a `Box<T>` is decoded as a `T`. It gives itself away by its size, or, where the value is
    /// as large as a pointer, too, by its name.
    #[inline]
    pub(super) fn boxes<T>(&self) -> bool {
        self.owns && (!needs_drop::<T>() || self.bytes != size_of::<T>() || self.is_in_doubt::<T>())
    }

    fn is_in_doubt<T>(&self) -> bool {
        self.bytes == size_of::<usize>() && self.name.is_none_or(|name| name() != type_name::<T>())
    }
}
