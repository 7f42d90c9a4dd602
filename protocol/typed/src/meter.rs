//! The meter around a codec: wrappers of serde's traits that charge the budget and then call the codec or the value.
//!
//! A codec's `Deserializer` is wrapped before the value sees it, and the value's `Visitor` before the codec sees it.
//! Every call between the two passes through here.

mod access;
mod storage;
mod visitor;

use core::fmt;
use core::marker::PhantomData;
use core::mem::needs_drop;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, Visitor};

use self::storage::Storage;
use super::decode_budget::{Broken, DecodeBudget, Level};

/// Bytes that a box takes beside its value: up to two reference counters, and padding.
const BOX_BYTES: usize = 3 * size_of::<usize>();

/// The contents of a value, by which its allocations are charged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// No other values. A string only if the value borrows it, or copies it by itself.
    Nothing,
    /// A string or bytes that it owns.
    Owned,
    /// A number of values that its type fixes. They lie inside of it.
    Fields,
    /// The values of one variant.
    Variants,
    /// A number of values that the message states. It allocates memory for them.
    Elements,
}

/// A value's visitor, metered.
struct MeteredVisitor<'b, V> {
    visitor: V,
    budget: Level<'b>,
    holds: Holds,
}

impl<'b, V> MeteredVisitor<'b, V> {
    /// Charges a string twice: the value may copy the one that the codec made.
    fn take_bytes<E: Error>(&self, bytes: usize) -> Result<(), E> {
        self.budget.take(bytes.saturating_mul(2)).map_err(Broken::into_error)
    }
}

/// Decodes a part of a value, metered.
struct MeteredSeed<'b, S> {
    seed: S,
    budget: Level<'b>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for MeteredSeed<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, codec: D) -> Result<S::Value, D::Error> {
        self.seed.deserialize(MeteredCodec { codec, budget: self.budget, storage: Storage::of::<S::Value>() })
    }
}

/// Returns the visitor of the fields of an enum's variant.
const fn fields<V>(visitor: V, budget: Level<'_>) -> MeteredVisitor<'_, V> {
    MeteredVisitor { visitor, budget, holds: Holds::Fields }
}

/// Returns the seed of a part.
const fn seed<S>(seed: S, budget: Level<'_>) -> MeteredSeed<'_, S> {
    MeteredSeed { seed, budget }
}

/// The value of a message, decoded within its budget: a serde seed for a codec's `Deserializer`.
pub struct Metered<'b, T> {
    budget: Level<'b>,
    value: PhantomData<fn() -> T>,
}

impl<'b, T> Metered<'b, T> {
    pub(super) const fn new(budget: &'b DecodeBudget) -> Self {
        Self { budget: budget.outside(), value: PhantomData }
    }
}

impl<T> fmt::Debug for Metered<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metered")
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Metered<'_, T> {
    type Value = T;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, codec: D) -> Result<T, D::Error> {
        T::deserialize(MeteredCodec { codec, budget: self.budget, storage: Storage::of::<T>() })
    }
}

/// A codec's deserializer, metered.
struct MeteredCodec<'b, D> {
    codec: D,
    budget: Level<'b>,
    storage: &'static Storage,
}

impl<'b, D> MeteredCodec<'b, D> {
    /// Charges a value that has a byte of its own, and returns its metered visitor.
    #[inline]
    fn meter<'de, V: Visitor<'de>>(&self, visitor: V, holds: Holds) -> Result<MeteredVisitor<'b, V>, D::Error>
    where
        D: Deserializer<'de>,
    {
        self.charge::<V::Value>(holds).map_err(Broken::into_error)?;
        Ok(MeteredVisitor { visitor, budget: self.budget, holds })
    }

    /// Charges a value without a byte of its own, such as a unit, and returns its metered visitor.
    #[inline]
    fn meter_byteless<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<MeteredVisitor<'b, V>, D::Error>
    where
        D: Deserializer<'de>,
    {
        self.budget.take_byteless().map_err(Broken::into_error)?;
        self.meter(visitor, Holds::Nothing)
    }

    /// Charges the allocations of a value: its own, and that of a box around it. Structs and tuples have none of their
    /// own.
    #[inline]
    fn charge<T>(&self, holds: Holds) -> Result<(), Broken> {
        let is_boxed = self.storage.boxes::<T>();
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

    /// Decodes a value that holds others, one level deeper. It has a byte of its own, or a length.
    #[inline]
    fn nest<'de, V: Visitor<'de>>(
        self,
        visitor: V,
        holds: Holds,
        decode: impl FnOnce(D, MeteredVisitor<'b, V>) -> Result<V::Value, D::Error>,
    ) -> Result<V::Value, D::Error>
    where
        D: Deserializer<'de>,
    {
        let visitor = self.meter(visitor, holds)?;
        let budget = self.budget.inside().map_err(Broken::into_error)?;
        decode(self.codec, MeteredVisitor { budget, ..visitor })
    }

    /// Decodes a value that consists of its fields alone, one level deeper.
    #[inline]
    fn nest_fields<'de, V: Visitor<'de>>(
        self,
        visitor: V,
        decode: impl FnOnce(D, MeteredVisitor<'b, V>) -> Result<V::Value, D::Error>,
    ) -> Result<V::Value, D::Error>
    where
        D: Deserializer<'de>,
    {
        self.budget.take_byteless().map_err(Broken::into_error)?;
        self.nest(visitor, Holds::Fields, decode)
    }
}

/// Forwards the methods for values that hold no others.
macro_rules! plain {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.meter(visitor, Holds::Nothing)?;
            self.codec.$method(visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for MeteredCodec<'_, D> {
    type Error = D::Error;

    plain! {
        deserialize_bool deserialize_char
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64
        deserialize_str deserialize_bytes deserialize_identifier deserialize_ignored_any
    }

    /// Refuses self-describing formats. The bounds do not cover them.
    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, D::Error> {
        Err(D::Error::custom("messages do not describe their own types"))
    }

    /// Borrows the string and copies it here: a codec would allocate it before it knows whether its bytes are there.
    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.meter(visitor, Holds::Owned)?;
        self.codec.deserialize_str(visitor)
    }

    #[inline]
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.meter(visitor, Holds::Owned)?;
        self.codec.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.meter_byteless(visitor)?;
        self.codec.deserialize_unit(visitor)
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.meter_byteless(visitor)?;
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
