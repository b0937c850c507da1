//! `raddle memory`: what a snapshot of a device's memory says.

use crate::output::{Failure, Outcome, check_keeps, is_stdout, say, write_whole};
use raddle::{
    MemorySnapshot,
    runtime::{PieceBytes, PoolKind},
};
use std::path::PathBuf;

/// Shows a snapshot of a device's memory: the figures, or a picture of who held what when.
#[derive(clap::Args)]
#[command(
    after_help = "Example: raddle demo --memory memory.json && raddle memory memory.json --html memory.html"
)]
pub struct Arguments {
    /// The snapshot, as `raddle demo --memory FILE.json` or `MemorySnapshot::to_json` writes it.
    snapshot: PathBuf,
    /// Writes the picture: one page that needs nothing else (- for standard output).
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Outcome {
    let path = &arguments.snapshot;
    check_keeps(arguments.html.as_deref(), "--html", &[path])?;
    let wrong = |reason: String| Failure::Input(format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let snapshot = MemorySnapshot::from_json(&text).map_err(|error| wrong(error.to_string()))?;
    if let Some(html) = &arguments.html {
        write_whole(html, snapshot.to_html().as_bytes())?;
    }
    if !is_stdout(arguments.html.as_deref()) {
        show(&snapshot)?;
    }
    Ok(())
}

fn show(snapshot: &MemorySnapshot) -> Outcome {
    let MemorySnapshot { device, stats, slabs, events, .. } = snapshot;
    let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    say(format_args!("{device}: {} slabs, {} events", slabs.len(), events.len()))?;
    say(format_args!(
        "  given out {}, at most {}",
        mib(stats.allocated_bytes),
        mib(stats.allocated_peak_bytes)
    ))?;
    say(format_args!(
        "  held      {}, at most {}",
        mib(stats.reserved_bytes),
        mib(stats.reserved_peak_bytes)
    ))?;
    say(format_args!("\n{:<24} {:>12} {:>12} {:>12}", "kept in", "given out", "free", "in flight"))?;
    let line = |name: String, bytes: &PieceBytes| {
        let PieceBytes { allocated_bytes, free_bytes, pending_bytes } = *bytes;
        say(format_args!(
            "{name:<24} {:>12} {:>12} {:>12}",
            mib(allocated_bytes),
            mib(free_bytes),
            mib(pending_bytes)
        ))
    };
    for pool in &stats.pools {
        let name = match pool.kind {
            PoolKind::Small { block_bytes } => format!("blocks of {block_bytes} bytes"),
            PoolKind::Large => "large blocks".into(),
            PoolKind::Private { number } => format!("private pool {number}"),
            PoolKind::Foreign => "memory of others".into(),
        };
        line(name, &pool.bytes)?;
    }
    for stream in &stats.streams {
        line(format!("last used on stream {}", stream.stream), &stream.bytes)?;
    }
    Ok(())
}
