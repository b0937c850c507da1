//! `cargo xtask kernels`: the CUDA kernels, compiled by NVRTC, which needs no GPU and no toolkit.

use crate::{Failure, Options, Outcome, command, failed};
use std::env;
use std::path::{Path, PathBuf};

pub const HELP: &str = "\
A representative set of the CUDA kernels, compiled for sm_80 and sm_90.

Usage: cargo xtask kernels [OPTIONS]

  --json FILE    the report: {nvrtc, archs, kernels, failed: [{name, arch, log}]}
  --filter TEXT  only kernels whose name contains it
  --dump DIR     writes the sources there

NVRTC is looked for in LD_LIBRARY_PATH, in Python's packages and in target/nvrtc:
pip install --target target/nvrtc 'nvidia-cuda-nvrtc>=13.0,<13.1'

Example: cargo xtask kernels --json kernels.json
";

/// The library of the major version that kernels are written for.
const LIBRARY: &str = "libnvrtc.so.13";
/// Where the wheel has it, from the folder of packages.
const IN_WHEEL: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"];

/// Folders that may hold the library, in the order in which they are tried.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        env::var_os("LD_LIBRARY_PATH").map(|paths| env::split_paths(&paths).collect()).unwrap_or_default();
    let mut packages = vec![command::root().join("target/nvrtc"), command::target_dir("nvrtc")];
    let script = "import site, sys; print('\\n'.join(site.getsitepackages() + [site.getusersitepackages()]))";
    if let Ok(said) = command::capture(command::program("python3").args(["-c", script])) {
        packages.extend(said.stdout.lines().map(PathBuf::from));
    }
    folders.extend(packages.iter().flat_map(|packages| IN_WHEEL.map(|folder| packages.join(folder))));
    folders
}

fn holder(folders: &[PathBuf]) -> Option<&Path> {
    folders.iter().map(PathBuf::as_path).find(|folder| folder.join(LIBRARY).is_file())
}

/// Compiles them.
pub fn run(mut options: Options) -> Outcome {
    let json = options.text("--json")?;
    let filter = options.text("--filter")?;
    let dump = options.text("--dump")?;
    options.finish()?;
    let folders = folders();
    let Some(folder) = holder(&folders) else {
        return failed(format!(
            "kernels: {LIBRARY} was not found: pip install 'nvidia-cuda-nvrtc>=13.0,<13.1' (or with --target target/nvrtc)"
        ));
    };
    let report = match &json {
        Some(path) => env::current_dir().map_or_else(|_| path.into(), |here| here.join(path)),
        None => {
            let folder = command::target_dir("kernels");
            let made = std::fs::create_dir_all(&folder);
            made.map_err(|error| command::io(&folder, &error))?;
            folder.join("report.json")
        }
    };
    let mut cargo = command::cargo();
    cargo.args(["run", "--quiet", "-p", "raddle-cuda", "--example", "kernels", "--", "--json"]).arg(&report);
    // The library loads its second half by name.
    let mut paths = vec![folder.to_path_buf()];
    paths.extend(env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths));
    cargo.env("LD_LIBRARY_PATH", env::join_paths(paths).map_err(|error| Failure::Check(error.to_string()))?);
    for (name, value) in [("--filter", filter), ("--dump", dump)] {
        if let Some(value) = value {
            cargo.args([name, &value]);
        }
    }
    let outcome = command::stream(&mut cargo);
    if let Ok(text) = std::fs::read_to_string(&report)
        && let Ok(value) = serde_json::from_str::<serde_json::Value>(&text)
    {
        let failures = value["failed"].as_array().map_or(0, Vec::len);
        println!("{} kernels, {failures} failures, NVRTC {}", value["kernels"], value["nvrtc"]);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_with_the_library_is_taken() {
        let base = command::target_dir("kernels-test");
        let [without, with] = ["without", "with"].map(|name| base.join(name));
        for folder in [&without, &with] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(with.join(LIBRARY), "").unwrap();
        let folders = [without.clone(), with.clone()];
        assert_eq!(holder(&folders), Some(with.as_path()));
        assert_eq!(holder(&folders[..1]), None);
    }
}
