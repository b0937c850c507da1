//! `raddle doctor`: what of CUDA is installed, what works, and how to get what is missing.

use crate::output::{Failure, Outcome, check_writable, is_stdout, say, write_json};
use raddle::cuda;
use serde::Serialize;
use std::path::PathBuf;

/// Shows the driver, the GPUs and the libraries, and how to get what is missing.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 a GPU that can be used, 1 no driver or no GPU, 2 a GPU that can't be used.

Example: raddle doctor --json -")]
pub struct Arguments {
    /// Writes the findings as JSON (- or no name: standard output).
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    devices: Vec<Device>,
    libraries: Vec<Library>,
}

#[derive(Serialize)]
struct Device {
    name: String,
    usable: bool,
    why: Option<String>,
}

#[derive(Serialize)]
struct Library {
    name: &'static str,
    version: Option<String>,
    found: bool,
}

pub fn run(arguments: &Arguments) -> Outcome {
    check_writable(arguments.json.as_deref())?;
    let found = cuda::report();
    let device = |device: &cuda::DeviceReport| Device {
        name: device.name.clone(),
        usable: device.why.is_none(),
        why: device.why.clone(),
    };
    let library = |library: &cuda::LibraryReport| Library {
        name: library.name,
        version: library.version.clone(),
        found: library.is_found,
    };
    let report = Report {
        devices: found.devices.iter().map(device).collect(),
        libraries: found.libraries.iter().map(library).collect(),
    };
    write_json(arguments.json.as_deref(), &report)?;
    let shown = if is_stdout(arguments.json.as_deref()) { Ok(()) } else { show(&found) };
    verdict(&found).and(shown)
}

/// What the exit code says.
fn verdict(found: &cuda::Report) -> Outcome {
    if found.devices.iter().any(|device| device.why.is_none()) {
        return Ok(());
    }
    match (found.devices.first(), &found.driver_error) {
        (Some(device), _) => {
            let why = device.why.as_deref().unwrap_or_default();
            Err(Failure::Unusable(format!("{}: {why}", device.name)))
        }
        (None, Some(error)) => Err(Failure::Other(format!("the CUDA driver doesn't work: {error}"))),
        (None, None) => Err(Failure::Other("there is no CUDA device; the device cpu works without".into())),
    }
}

fn show(found: &cuda::Report) -> Outcome {
    for library in &found.libraries {
        match (library.is_found, &library.version) {
            (true, Some(version)) => say(format_args!("{:<30} {version}", library.name)),
            (true, None) => say(format_args!("{:<30} found, version unknown", library.name)),
            (false, _) => say(format_args!("{:<30} missing: {}", library.name, library.remedy)),
        }?;
    }
    for device in &found.devices {
        let gib = |bytes: usize| bytes as f64 / (1_u64 << 30) as f64;
        let (name, description, all) = (&device.name, &device.description, gib(device.memory_bytes));
        let state = match &device.why {
            None => format!("{:.1} free, works", gib(device.free_bytes)),
            Some(why) => format!("can't be used: {why}"),
        };
        say(format_args!("{name:<30} {description}, {all:.1} GiB, {state}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(why: Option<&str>) -> cuda::DeviceReport {
        cuda::DeviceReport {
            name: "cuda:0".into(),
            description: "a card".into(),
            memory_bytes: 1,
            free_bytes: 1,
            why: why.map(str::to_string),
        }
    }

    fn found(devices: Vec<cuda::DeviceReport>) -> cuda::Report {
        cuda::Report { libraries: Vec::new(), devices, driver_error: None }
    }

    #[test]
    fn one_device_that_works_is_enough() {
        assert!(verdict(&found(vec![device(Some("broken")), device(None)])).is_ok());
    }

    #[test]
    fn devices_that_do_not_work_are_another_failure_than_none() {
        assert!(matches!(verdict(&found(vec![device(Some("broken"))])), Err(Failure::Unusable(_))));
        assert!(matches!(verdict(&found(Vec::new())), Err(Failure::Other(_))));
    }
}
