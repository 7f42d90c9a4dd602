//! The storage that a value is decoded for, and whether the value lies in it directly or in a box.

use core::any::type_name;
use core::marker::PhantomData;
use core::mem::needs_drop;

/// The storage of a value, as far as its type describes it before the value is decoded.
pub(super) struct Storage {
    bytes: usize,
    /// Whether the type has a destructor. Only such a type can own memory.
    owns: bool,
    /// The name of the type, where it is known.
    name: Option<fn() -> &'static str>,
}

struct Of<T>(PhantomData<T>);

impl<T> Of<T> {
    const INSIDE: Storage = Storage { bytes: size_of::<T>(), owns: needs_drop::<T>(), name: None };
    const STORAGE: Storage = Storage { name: Some(type_name::<T>), ..Self::INSIDE };
}

impl Storage {
    #[inline]
    pub(super) const fn of<T>() -> &'static Self {
        &Of::<T>::STORAGE
    }

    /// Returns the storage inside of an option or a newtype. Its type is unknown, but it needs what the whole needs.
    #[inline]
    pub(super) const fn inside<T>() -> &'static Self {
        &Of::<T>::INSIDE
    }

    /// Returns whether a value of this type lies in a box, and not in this storage itself. Unclear cases count as
    /// boxes.
    ///
    /// serde decodes a `Box<T>` as a `T`, so the box is found by its size. Where the value is as large as a pointer, it
    /// is found by the name of the type.
    #[inline]
    pub(super) fn boxes<T>(&self) -> bool {
        self.owns && (!needs_drop::<T>() || self.bytes != size_of::<T>() || self.is_unclear::<T>())
    }

    fn is_unclear<T>(&self) -> bool {
        self.bytes == size_of::<usize>() && self.name.is_none_or(|name| name() != type_name::<T>())
    }
}
