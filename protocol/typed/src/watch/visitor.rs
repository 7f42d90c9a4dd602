//! A value's visitor, watched: strings are charged as they come, and what holds others is handed on watched.

use alloc::borrow::ToOwned;
use core::fmt;
use core::mem::needs_drop;

use serde::de::{Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};

use super::Watching;
use super::access::{WatchedElements, WatchedEnum, WatchedSeed};
use super::place::Place;
use crate::budget::{Broken, Level};

/// The size of the largest collection that keeps its elements side by side: a deque. Hash tables are larger.
const LARGEST_VECTOR: usize = 4 * size_of::<usize>();

/// What a value holds, and so what it may ask memory for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// No other values; a string only if it borrows or copies it by itself.
    Nothing,
    /// A string or bytes of its own.
    Owned,
    /// As many others as its type says: they lie in it.
    Fields,
    /// The same, or others, or none.
    Variants,
    /// As many others as the message says: memory is asked for them.
    Elements,
}

pub(super) struct WatchedVisitor<'b, V> {
    pub(super) visitor: V,
    pub(super) budget: Level<'b>,
    pub(super) holds: Holds,
}

impl<'b, V> WatchedVisitor<'b, V> {
    /// Charges a string twice: it may be made, and then be copied into what the value keeps.
    fn take_bytes<E: Error>(&self, bytes: usize) -> Result<(), E> {
        self.budget.take(bytes.saturating_mul(2)).map_err(Broken::into_error)
    }
}

macro_rules! plain {
    ($($method:ident $value:ty,)*) => {$(
        #[inline]
        fn $method<E: Error>(self, value: $value) -> Result<V::Value, E> {
            self.visitor.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for WatchedVisitor<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    plain! {
        visit_bool bool, visit_char char,
        visit_i8 i8, visit_i16 i16, visit_i32 i32, visit_i64 i64, visit_i128 i128,
        visit_u8 u8, visit_u16 u16, visit_u32 u32, visit_u64 u64, visit_u128 u128,
        visit_f32 f32, visit_f64 f64,
    }

    #[inline]
    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        self.take_bytes(text.len())?;
        self.visitor.visit_str(text)
    }

    #[inline]
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<V::Value, E> {
        self.take_bytes(text.len())?;
        if self.holds == Holds::Owned {
            self.visitor.visit_string(text.to_owned())
        } else {
            self.visitor.visit_borrowed_str(text)
        }
    }

    #[inline]
    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<V::Value, E> {
        self.take_bytes(bytes.len())?;
        self.visitor.visit_bytes(bytes)
    }

    #[inline]
    fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<V::Value, E> {
        self.take_bytes(bytes.len())?;
        if self.holds == Holds::Owned {
            // It may ask again, to make room for an end.
            self.budget.allocate(1).map_err(Broken::into_error)?;
            self.visitor.visit_byte_buf(bytes.to_owned())
        } else {
            self.visitor.visit_borrowed_bytes(bytes)
        }
    }

    #[inline]
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.budget.allocate(usize::from(needs_drop::<V::Value>())).map_err(Broken::into_error)?;
        self.visitor.visit_none()
    }

    #[inline]
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, codec: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Watching { codec, budget: self.budget, place: Place::inside::<V::Value>() })
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, codec: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Watching { codec, budget: self.budget, place: Place::inside::<V::Value>() })
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, codec: A) -> Result<V::Value, A::Error> {
        let may_double = size_of::<V::Value>() <= LARGEST_VECTOR;
        self.visitor.visit_seq(WatchedElements::new(codec, self.budget, self.holds, may_double))
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, codec: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(WatchedElements::new(codec, self.budget, self.holds, false))
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, codec: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(WatchedEnum { codec, budget: self.budget })
    }
}

/// A visitor for what lies inside: the fields of an enum's variant.
pub(super) const fn fields<V>(visitor: V, budget: Level<'_>) -> WatchedVisitor<'_, V> {
    WatchedVisitor { visitor, budget, holds: Holds::Fields }
}

/// A seed for what lies inside.
pub(super) const fn seed<S>(seed: S, budget: Level<'_>) -> WatchedSeed<'_, S> {
    WatchedSeed { seed, budget }
}
