//! Intra-op threads. (A stand-in: everything on the calling thread.)

/// How many threads a kernel may use; 1 where it must stay on its own.
#[derive(Clone, Copy, Debug)]
pub struct Threads(pub usize);

impl Threads {
    /// Runs `body(0)` … `body(parts - 1)`, each once, in any order, on this thread and the helpers that it may use. How
    /// work is cut into parts must depend on shapes only, never on the number of threads (T8).
    pub fn for_each_part(self, parts: usize, body: impl Fn(usize) + Sync) {
        (0..parts).for_each(body);
    }
}
