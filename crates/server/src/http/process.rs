//! What a monitor of processes wants to know of this one, by the names that Prometheus' own libraries give it. Linux only:
//! elsewhere there are none.

use std::fs;

/// A value and what it is called.
pub struct Figure {
    pub name: &'static str,
    pub kind: &'static str,
    pub help: &'static str,
    pub value: f64,
}

/// Of a second, as Linux counts them for programs.
const TICKS: f64 = 100.0;

/// All that the system tells; what it doesn't is left out.
pub fn figures() -> Vec<Figure> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let [stat, status, limits, boot] =
        ["/proc/self/stat", "/proc/self/status", "/proc/self/limits", "/proc/stat"].map(read);
    // The number behind a name at the start of a line.
    let named = |text: &str, name: &str| -> Option<f64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    // The name of the program stands in parentheses, and may hold some itself. Fields have the numbers of proc(5), where the first
    // behind it is 3.
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |number: usize| behind.split_whitespace().nth(number - 3)?.parse::<f64>().ok();
    let cpu = ticks(14).zip(ticks(15)).map(|(user, system)| (user + system) / TICKS);
    let start = named(&boot, "btime").zip(ticks(22)).map(|(boot, start)| boot + start / TICKS);
    let kib = |name: &str| named(&status, name).map(|kib| kib * 1024.0);
    let open = fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64);
    let figures = [
        ("process_cpu_seconds_total", "counter", "Seconds of all cores.", cpu),
        ("process_start_time_seconds", "gauge", "Seconds since 1970.", start),
        ("process_resident_memory_bytes", "gauge", "In memory.", kib("VmRSS:")),
        ("process_virtual_memory_bytes", "gauge", "Of addresses.", kib("VmSize:")),
        ("process_open_fds", "gauge", "Open files and connections.", open),
        ("process_max_fds", "gauge", "The most of them.", named(&limits, "Max open files")),
        ("process_threads", "gauge", "Threads.", named(&status, "Threads:")),
    ];
    let figure = |(name, kind, help, value): (_, _, _, Option<f64>)| {
        value.map(|value| Figure { name, kind, help, value })
    };
    figures.into_iter().filter_map(figure).collect()
}
