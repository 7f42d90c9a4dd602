//! The watch over a codec: serde's traits once more, each handing on to the codec's or the value's own, and charging.
//!
//! A codec's `Deserializer` is wrapped on its way to the value, and the value's `Visitor` on its way to the codec, so
//! that whatever one tells the other passes here.

mod access;
mod place;
mod visitor;

use core::fmt;
use core::marker::PhantomData;
use core::mem::needs_drop;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, Visitor};

use self::place::Place;
use self::visitor::{Holds, WatchedVisitor};
use super::budget::{Broken, Budget, Level};

/// What a box takes beside its value: up to two counters and what alignment adds.
const BOX_BYTES: usize = 3 * size_of::<usize>();

/// The value of a message, to be decoded within its budget: a seed, as serde calls it, for a codec's `Deserializer`.
pub struct Watched<'b, T> {
    budget: Level<'b>,
    value: PhantomData<fn() -> T>,
}

impl<'b, T> Watched<'b, T> {
    pub(super) const fn new(budget: &'b Budget) -> Self {
        Self { budget: budget.outside(), value: PhantomData }
    }
}

impl<T> fmt::Debug for Watched<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Watched<'_, T> {
    type Value = T;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, codec: D) -> Result<T, D::Error> {
        T::deserialize(Watching { codec, budget: self.budget, place: Place::of::<T>() })
    }
}

/// A codec's deserializer, watched.
struct Watching<'b, D> {
    codec: D,
    budget: Level<'b>,
    place: &'static Place,
}

impl<'b, D> Watching<'b, D> {
    /// The visitor of a value that has a byte of its own, watched, once the value itself is charged.
    #[inline]
    fn watch<'de, V: Visitor<'de>>(&self, visitor: V, holds: Holds) -> Result<WatchedVisitor<'b, V>, D::Error>
    where
        D: Deserializer<'de>,
    {
        self.charge::<V::Value>(holds).map_err(Broken::into_error)?;
        Ok(WatchedVisitor { visitor, budget: self.budget, holds })
    }

    /// The same of a value that has no byte of its own: a unit, or what only holds others.
    #[inline]
    fn watch_byteless<'de, V: Visitor<'de>>(&self, visitor: V, holds: Holds) -> Result<WatchedVisitor<'b, V>, D::Error>
    where
        D: Deserializer<'de>,
    {
        self.budget.take_byteless().map_err(Broken::into_error)?;
        self.charge::<V::Value>(holds).map_err(Broken::into_error)?;
        Ok(WatchedVisitor { visitor, budget: self.budget, holds })
    }

    /// Charges the calls for memory that a value stands for: its own, and that of a box around it. What only holds others
    /// has none of its own.
    #[inline]
    fn charge<T>(&self, holds: Holds) -> Result<(), Broken> {
        let is_boxed = self.place.boxes::<T>();
        let calls = match holds {
            Holds::Fields => usize::from(is_boxed),
            _ if is_boxed => 1 + usize::from(needs_drop::<T>()),
            _ => usize::from(needs_drop::<T>()),
        };
        if calls > 0 {
            self.budget.allocate(calls)?;
            self.budget.take(size_of::<T>())?;
        }
        if is_boxed {
            self.budget.take(BOX_BYTES)?;
        }
        Ok(())
    }

    /// Decodes a value that holds others, one level deeper; before them stands a byte of its own, or a length.
    #[inline]
    fn nest<'de, V: Visitor<'de>>(
        self,
        visitor: V,
        holds: Holds,
        decode: impl FnOnce(D, WatchedVisitor<'b, V>) -> Result<V::Value, D::Error>,
    ) -> Result<V::Value, D::Error>
    where
        D: Deserializer<'de>,
    {
        let visitor = self.watch(visitor, holds)?;
        self.descend(visitor, decode)
    }

    /// Decodes a value of which nothing stands in the message but its fields, one level deeper.
    #[inline]
    fn nest_fields<'de, V: Visitor<'de>>(
        self,
        visitor: V,
        decode: impl FnOnce(D, WatchedVisitor<'b, V>) -> Result<V::Value, D::Error>,
    ) -> Result<V::Value, D::Error>
    where
        D: Deserializer<'de>,
    {
        let visitor = self.watch_byteless(visitor, Holds::Fields)?;
        self.descend(visitor, decode)
    }

    #[inline]
    fn descend<'de, V: Visitor<'de>>(
        self,
        visitor: WatchedVisitor<'b, V>,
        decode: impl FnOnce(D, WatchedVisitor<'b, V>) -> Result<V::Value, D::Error>,
    ) -> Result<V::Value, D::Error>
    where
        D: Deserializer<'de>,
    {
        let budget = self.budget.inside().map_err(Broken::into_error)?;
        decode(self.codec, WatchedVisitor { budget, ..visitor })
    }
}

/// Values that hold no others.
macro_rules! plain {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.watch(visitor, Holds::Nothing)?;
            self.codec.$method(visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Watching<'_, D> {
    type Error = D::Error;

    plain! {
        deserialize_bool deserialize_char
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64
        deserialize_str deserialize_bytes deserialize_identifier deserialize_ignored_any
    }

    /// Of a format that says its types: none of ours does, and another would have to be bounded otherwise.
    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, D::Error> {
        Err(D::Error::custom("messages do not say of what type they are"))
    }

    /// Codecs make a string before they know whether its bytes are there; so it is borrowed, and made here.
    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.watch(visitor, Holds::Owned)?;
        self.codec.deserialize_str(visitor)
    }

    #[inline]
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.watch(visitor, Holds::Owned)?;
        self.codec.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.watch_byteless(visitor, Holds::Nothing)?;
        self.codec.deserialize_unit(visitor)
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.watch_byteless(visitor, Holds::Nothing)?;
        self.codec.deserialize_unit_struct(name, visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.nest(visitor, Holds::Fields, D::deserialize_option)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.nest_fields(visitor, |codec, visitor| codec.deserialize_newtype_struct(name, visitor))
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.nest(visitor, Holds::Elements, D::deserialize_seq)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.nest(visitor, Holds::Elements, D::deserialize_map)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.nest_fields(visitor, |codec, visitor| codec.deserialize_tuple(length, visitor))
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.nest_fields(visitor, |codec, visitor| codec.deserialize_tuple_struct(name, length, visitor))
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.nest_fields(visitor, |codec, visitor| codec.deserialize_struct(name, fields, visitor))
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.nest(visitor, Holds::Variants, |codec, visitor| codec.deserialize_enum(name, variants, visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.codec.is_human_readable()
    }
}
