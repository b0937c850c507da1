//! Compiles a representative set of kernels with NVRTC, which needs no GPU: `cargo xtask kernels` runs this.
//!
//! Writes `{nvrtc, archs, kernels, failed: [{name, arch, log}]}` to the file after `--json`, or to standard output.

use cudarc::nvrtc::{result, sys};
use raddle_sync::{Arc, thread};
use std::ffi::CString;
use std::io::Write;

const ARCHS: [&str; 2] = ["sm_80", "sm_90"];
/// Enough for the machines of CI (guess).
const THREAD_COUNT: usize = 8;

fn compile(source: &str, arch: &str) -> Result<usize, String> {
    let source = CString::new(source).map_err(|error| error.to_string())?;
    let program = result::create_program(&source, None).map_err(|error| error.to_string())?;
    let options = [format!("--gpu-architecture={arch}"), "--fmad=false".into(), "--std=c++17".into()];
    // SAFETY: the program lives until it is destroyed below.
    let outcome = unsafe { result::compile_program(program, &options) };
    let log = || {
        // SAFETY: as above; the log ends with a zero.
        unsafe {
            let log = result::get_program_log(program).unwrap_or_default();
            let bytes: Vec<u8> = log.iter().map(|&byte| byte as u8).take_while(|byte| *byte != 0).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
    };
    let mut size_bytes = 0;
    let compiled = match outcome {
        // SAFETY: it writes one number.
        Ok(()) => match unsafe { sys::nvrtcGetCUBINSize(program, &mut size_bytes) }.result() {
            Ok(()) => Ok(size_bytes),
            Err(error) => Err(error.to_string()),
        },
        Err(error) => Err(format!("{error}\n{}", log())),
    };
    // SAFETY: nobody uses it any more.
    let destroyed = unsafe { result::destroy_program(program) };
    destroyed.map_err(|error| error.to_string())?;
    compiled
}

/// As JSON has it.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        '\n' => "\\n".into(),
        c if c < ' ' => " ".into(),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let option =
        |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1)).cloned();
    // SAFETY: loading the library runs its initializers, which are fit for that.
    if !unsafe { sys::is_culib_present() } {
        eprintln!("kernels: NVRTC was not found: pip install 'nvidia-cuda-nvrtc>=13.0,<13.1'");
        return 1.into();
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: it writes two numbers.
    let version = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    version.result().expect("it tells its version");
    let filter = option("--filter").unwrap_or_default();
    let kernels: Vec<_> =
        raddle_cuda::kernels::catalogue().into_iter().filter(|(name, _)| name.contains(&filter)).collect();
    if let Some(folder) = option("--dump") {
        for (index, (name, key)) in kernels.iter().enumerate() {
            let path = format!("{folder}/{index:04} {}.cu", name.replace('/', " "));
            std::fs::write(path, key.source()).expect("the folder can be written");
        }
    }
    let kernels = Arc::new(kernels);
    let workers: Vec<_> = (0..THREAD_COUNT)
        .map(|worker| {
            let kernels = kernels.clone();
            thread::spawn(move || {
                let mut failures = Vec::new();
                for (name, key) in kernels.iter().skip(worker).step_by(THREAD_COUNT) {
                    let source = key.source();
                    for arch in ARCHS {
                        failures.extend(compile(&source, arch).err().map(|log| (name.clone(), arch, log)));
                    }
                }
                failures
            })
        })
        .collect();
    let failures: Vec<_> =
        workers.into_iter().flat_map(|worker| worker.join().expect("compiling doesn't panic")).collect();
    let failed: Vec<String> = failures
        .iter()
        .map(|(name, arch, log)| {
            format!("{{\"name\": {}, \"arch\": \"{arch}\", \"log\": {}}}", quoted(name), quoted(log))
        })
        .collect();
    let report = format!(
        "{{\"nvrtc\": \"{major}.{minor}\", \"archs\": [\"{}\"], \"kernels\": {}, \"failed\": [{}]}}\n",
        ARCHS.join("\", \""),
        kernels.len(),
        failed.join(", ")
    );
    match option("--json") {
        Some(path) => std::fs::write(&path, &report).expect("the report can be written"),
        None => std::io::stdout().write_all(report.as_bytes()).expect("the report can be written"),
    }
    for (name, arch, log) in failures.iter().take(8) {
        eprintln!("{name} ({arch}): {log}");
    }
    u8::from(!failures.is_empty()).into()
}
