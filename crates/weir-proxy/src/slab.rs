//! Implements a slab with generations: a removed value's key does not refer to another value.
//!
//! This holds even if the slot is reused, until its generation wraps after 2^28 removals.

/// Index and generation of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// A key that refers to no value.
    pub(crate) const NONE: Self = Self {
        index: u32::MAX,
        generation: 0,
    };
    /// Number of bits in a generation. A key and a few more bits must fit into the 64 bits of an epoll event.
    pub(crate) const GENERATION_BITS: u32 = 28;

    pub(crate) const fn is_none(self) -> bool {
        self.index == u32::MAX
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// A collection of values with stable keys; see the module documentation.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Key {
                index,
                generation: slot.generation,
            };
        }
        let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX - 1);
        self.slots.push(Slot {
            generation: 0,
            value: Some(value),
        });
        Key {
            index,
            generation: 0,
        }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation {
            slot.value.as_mut()
        } else {
            None
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation {
            slot.value.as_ref()
        } else {
            None
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & ((1 << Key::GENERATION_BITS) - 1);
        self.free.push(key.index);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let slots = (0..).zip(&self.slots);
        slots
            .filter(|(_, slot)| slot.value.is_some())
            .map(|(index, slot)| Key {
                index,
                generation: slot.generation,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_removed_value_does_not_find_new_value() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(second.index, first.index);
        assert_eq!(
            (slab.get(first), slab.get(second), slab.len()),
            (None, Some(&'b'), 1)
        );
        assert_eq!((slab.remove(first), slab.remove(second)), (None, Some('b')));
        assert!(slab.keys().is_empty());
    }
}
