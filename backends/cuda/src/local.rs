//! What a thread keeps of a cache, so that a launch takes no lock and touches no shared count.
//!
//! A few values, each at the place that its key's hash names. [`Cache::generation`](raddle_sync::Cache::generation) tells
//! that something has left the cache; then the thread lets go of all that it has of that device.

use raddle_sync::Arc;
use std::{
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher},
    rc::Rc,
};

/// Values that a thread keeps: a place is the key's hash. (Two keys of one place take turns.)
pub const LOCAL_COUNT: usize = 256; // guess: a model has some dozens of kernels

struct Kept<K, V> {
    device: u64,
    key: K,
    value: Rc<Held<V>>,
}

/// A thread's one count of a value; within the thread it is shared without touching that.
pub struct Held<V>(pub Arc<V>);

impl<V> std::ops::Deref for Held<V> {
    type Target = V;
    fn deref(&self) -> &V {
        &self.0
    }
}

/// Multiplies: the default hasher takes some 50 ns for a key, where all else that a small launch takes in this crate is 140.
/// Who finds keys that share a place makes them take turns, no more.
#[derive(Default)]
struct Mix(u64);

impl Mix {
    /// As FxHash: odd, with bits that look random.
    const FACTOR: u64 = 0x517c_c1b7_2722_0a95;
}

macro_rules! mixed {
    ($($write:ident($number:ty)),*) => {$(
        #[inline]
        fn $write(&mut self, number: $number) {
            self.0 = (self.0.rotate_left(5) ^ number as u64).wrapping_mul(Mix::FACTOR);
        }
    )*};
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        // The upper bits depend on all that was written.
        self.0 >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }
    mixed!(write_u8(u8), write_u16(u16), write_u32(u32), write_u64(u64), write_usize(usize));
}

/// The values that a thread has used last.
pub struct Local<K, V> {
    places: Vec<Option<Kept<K, V>>>,
    /// Of each device that it was used with.
    generations: Vec<(u64, u64)>,
}

impl<K: Hash + Eq + Clone, V> Local<K, V> {
    pub fn new() -> Local<K, V> {
        Local { places: Vec::new(), generations: Vec::new() }
    }

    /// The value that the thread keeps for a key, or what `find` finds. `device` tells devices apart.
    #[inline]
    pub fn get<E>(
        &mut self,
        device: u64,
        generation: u64,
        key: &K,
        find: impl FnOnce() -> Result<Arc<V>, E>,
    ) -> Result<Rc<Held<V>>, E> {
        if !self.generations.contains(&(device, generation)) {
            self.renew(device, generation);
        }
        let place = BuildHasherDefault::<Mix>::new().hash_one(key) as usize % LOCAL_COUNT;
        if let Some(kept) = &self.places[place]
            && kept.device == device
            && kept.key == *key
        {
            return Ok(kept.value.clone());
        }
        let value = Rc::new(Held(find()?));
        self.places[place] = Some(Kept { device, key: key.clone(), value: value.clone() });
        Ok(value)
    }

    /// How many values of a device it keeps.
    pub fn count(&self, device: u64) -> usize {
        self.places.iter().flatten().filter(|kept| kept.device == device).count()
    }

    /// Lets go of everything of a device.
    pub fn clear(&mut self, device: u64) {
        for place in &mut self.places {
            place.take_if(|kept| kept.device == device);
        }
    }

    /// Lets go of everything of a device: some of it was evicted.
    #[cold]
    fn renew(&mut self, device: u64, generation: u64) {
        self.places.resize_with(LOCAL_COUNT, || None);
        self.clear(device);
        self.generations.retain(|(other, _)| *other != device);
        self.generations.push((device, generation));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn a_thread_keeps_values_until_one_of_its_device_is_evicted() {
        let mut local: Local<u32, u32> = Local::new();
        let found = Arc::new(5);
        let mut get = |device, generation| {
            let mut asked = false;
            let Ok(_) = local.get(device, generation, &1, || {
                asked = true;
                Ok::<_, Infallible>(found.clone())
            });
            asked
        };
        assert_eq!([get(7, 0), get(7, 0), get(7, 1), get(7, 1)], [true, false, true, false]);
        assert_eq!([get(8, 0), get(8, 0)], [true, false]);
        assert_eq!([local.count(7), local.count(8)], [0, 1], "one place, which they take in turns");
        local.clear(8);
        assert_eq!((local.count(8), Arc::strong_count(&found)), (0, 1));
    }
}
