//! Metered access to a value's parts: charges each element before it is decoded, and hides announced lengths.

use core::cell::Cell;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::{Holds, fields, seed};
use crate::decode_budget::{Broken, DecodeBudget, Element, Growth, Level};

/// The growth of a collection so far.
struct Filling {
    taken: usize,
    /// The number of elements at which it allocates.
    grows_at: usize,
    growth: Growth,
}

impl Filling {
    /// Charges an element.
    #[inline]
    fn take(&mut self, element: Element, budget: &DecodeBudget) -> Result<(), Broken> {
        if self.taken == self.grows_at {
            self.grows_at = budget.grow(element, self.growth, self.taken)?;
        }
        if self.growth == Growth::Each || !element.is_small() {
            budget.take_element(element)?;
        }
        self.taken = self.taken.saturating_add(1);
        Ok(())
    }
}

/// Charges an element when the codec has really found one.
struct ElementSeed<'b, 'f, S> {
    seed: S,
    budget: Level<'b>,
    /// `None` for fields: they lie inside of the value that holds them.
    filling: Option<&'f mut Filling>,
    element: Element,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for ElementSeed<'_, '_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, codec: D) -> Result<S::Value, D::Error> {
        if let Some(filling) = self.filling {
            filling.take(self.element, &self.budget).map_err(Broken::into_error)?;
        }
        seed(self.seed, self.budget).deserialize(codec)
    }
}

/// Elements of a sequence, entries of a map, or fields.
pub(super) struct MeteredElements<'b, A> {
    codec: A,
    budget: Level<'b>,
    holds: Holds,
    filling: Filling,
    /// How the collection allocates if it asks for the number of elements.
    bulk_growth: Growth,
    /// Whether the collection asked for the number of elements, as those do that allocate for many at once.
    was_asked: Cell<bool>,
    /// The key of the map entry that is being decoded.
    key: Element,
}

impl<'b, A> MeteredElements<'b, A> {
    pub(super) const fn new(codec: A, budget: Level<'b>, holds: Holds, bulk_growth: Growth) -> Self {
        let filling = Filling { taken: 0, grows_at: 0, growth: Growth::Each };
        let (was_asked, key) = (Cell::new(false), Element::of::<()>());
        Self { codec, budget, holds, filling, bulk_growth, was_asked, key }
    }

    #[inline]
    fn element<S>(&mut self, seed: S, element: Element) -> (&mut A, ElementSeed<'b, '_, S>) {
        if self.was_asked.get() {
            self.filling.growth = self.bulk_growth;
        }
        let filling = (self.holds == Holds::Elements).then_some(&mut self.filling);
        (&mut self.codec, ElementSeed { seed, budget: self.budget, filling, element })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for MeteredElements<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let (codec, seed) = self.element(seed, Element::of::<S::Value>());
        codec.next_element_seed(seed)
    }

    /// Returns `None`: a length in a message is not to be trusted, so collections grow with what arrives.
    fn size_hint(&self) -> Option<usize> {
        self.was_asked.set(true);
        None
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for MeteredElements<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, key: S) -> Result<Option<S::Value>, A::Error> {
        self.key = Element::of::<S::Value>();
        self.codec.next_key_seed(seed(key, self.budget))
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let (codec, seed) = self.element(seed, self.key.and(Element::of::<S::Value>()));
        codec.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        None
    }
}

/// An enum, and then its variant.
pub(super) struct MeteredEnum<'b, A> {
    pub(super) codec: A,
    pub(super) budget: Level<'b>,
}

impl<'de, 'b, A: EnumAccess<'de>> EnumAccess<'de> for MeteredEnum<'b, A> {
    type Error = A::Error;
    type Variant = MeteredEnum<'b, A::Variant>;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(self, variant: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, codec) = self.codec.variant_seed(seed(variant, self.budget))?;
        Ok((value, MeteredEnum { codec, budget: self.budget }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for MeteredEnum<'_, A> {
    type Error = A::Error;

    #[inline]
    fn unit_variant(self) -> Result<(), A::Error> {
        self.codec.unit_variant()
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, value: S) -> Result<S::Value, A::Error> {
        self.codec.newtype_variant_seed(seed(value, self.budget))
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.codec.tuple_variant(length, fields(visitor, self.budget))
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(self, names: &'static [&'static str], visitor: V) -> Result<V::Value, A::Error> {
        self.codec.struct_variant(names, fields(visitor, self.budget))
    }
}
