//! From source to what the driver loads, by NVRTC.
//!
//! For the very architecture of the card, so that nothing is compiled again at load; `--fmad=false`, since a contracted
//! multiplication and addition would round once where the CPU rounds twice. An NVRTC that is older than the card makes PTX
//! for the newest architecture it knows, which the driver translates.

use crate::{disk::Disk, setup::SetupError};
use cudarc::nvrtc::{
    result::{self, NvrtcError},
    sys,
};
use raddle_hal::{Counters, DeviceError};
use raddle_sync::atomic::{AtomicU64, Ordering::*};
use std::{
    ffi::{CString, c_char},
    time::Instant,
};

pub const LIBRARY: &str = "NVRTC (libnvrtc.so)";
pub const REMEDY: &str =
    "pip install 'nvidia-cuda-nvrtc>=13,<14', and add the folder of libnvrtc.so.13 to LD_LIBRARY_PATH";
/// Lines of the log that an error carries.
const LOG_LINE_COUNT_MAX: usize = 8;

/// Compiles for one card.
pub struct Compiler {
    /// As NVRTC says.
    pub version: (i32, i32),
    architecture: String,
    is_binary: bool,
    /// Where compiled kernels are kept.
    disk: Option<Disk>,
    compiles: AtomicU64,
    compile_ns: AtomicU64,
}

/// Is the library there?
pub fn is_present() -> bool {
    // SAFETY: loading the library runs its initializers, which are fit for that.
    unsafe { sys::is_culib_present() }
}

fn checked(call: &'static str, code: sys::nvrtcResult) -> Result<(), DeviceError> {
    code.result().map_err(|error| failed(call, error))
}

fn failed(call: &'static str, NvrtcError(code): NvrtcError) -> DeviceError {
    DeviceError::Driver { call, code: i64::from(code as u32) }
}

/// The version of the library, which is there.
pub fn version() -> Result<(i32, i32), DeviceError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: it writes two numbers.
    checked("nvrtcVersion", unsafe { sys::nvrtcVersion(&mut major, &mut minor) })?;
    Ok((major, minor))
}

/// The architectures that the library, which is there, compiles for; as 90 for 9.0.
fn architectures() -> Result<Vec<i32>, DeviceError> {
    let mut count = 0;
    // SAFETY: it writes one number.
    checked("nvrtcGetNumSupportedArchs", unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) })?;
    let mut found = vec![0; count as usize];
    // SAFETY: it writes as many numbers as it has just said.
    checked("nvrtcGetSupportedArchs", unsafe { sys::nvrtcGetSupportedArchs(found.as_mut_ptr()) })?;
    Ok(found)
}

/// Runs of the compiler, how long they took in all, kernels that were found on the disk and that were not, and files that were
/// damaged or not what their names say, which count as misses, too.
const COUNTERS: &[&str; 5] = &["compiles", "compile_ns", "disk_hits", "disk_misses", "disk_corrupt"];

impl Compiler {
    /// For a card of this capability.
    pub fn new(capability: u32, disk: Option<Disk>) -> Result<Compiler, DeviceError> {
        if !is_present() {
            return Err(SetupError::missing(LIBRARY, REMEDY));
        }
        let own = capability as i32;
        let newest = architectures()?.into_iter().filter(|known| *known <= own).max().unwrap_or(own);
        let kind = if newest == own { "sm" } else { "compute" };
        Ok(Compiler {
            version: version()?,
            architecture: format!("{kind}_{newest}"),
            is_binary: newest == own,
            disk,
            compiles: AtomicU64::new(0),
            compile_ns: AtomicU64::new(0),
        })
    }

    /// What it has compiled and found on the disk.
    pub fn counts(&self) -> Counters {
        let [hits, misses, corrupt] = self.disk.as_ref().map(Disk::counts).unwrap_or_default();
        let [compiles, compile_ns] = [&self.compiles, &self.compile_ns].map(|count| count.load(Relaxed));
        Counters::new(COUNTERS, [compiles, compile_ns, hits, misses, corrupt])
    }

    fn options(&self) -> [String; 3] {
        [format!("--gpu-architecture={}", self.architecture), "--fmad=false".into(), "--std=c++17".into()]
    }

    /// What the driver loads; from the disk if it was compiled before. Blocks for some tens of milliseconds otherwise.
    pub fn image(&self, kernel: &'static str, source: &str) -> Result<Vec<u8>, DeviceError> {
        self.image_by(source, || {
            let start = Instant::now();
            let image = self.compile(kernel, source);
            self.compiles.fetch_add(1, Relaxed);
            self.compile_ns.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
            image
        })
    }

    fn image_by(
        &self,
        source: &str,
        compile: impl FnOnce() -> Result<Vec<u8>, DeviceError>,
    ) -> Result<Vec<u8>, DeviceError> {
        let Some(disk) = &self.disk else { return compile() };
        let (major, minor) = self.version;
        let own = env!("CARGO_PKG_VERSION");
        let identity = format!("raddle {own}, NVRTC {major}.{minor}, {}\n{source}", self.options().join(" "));
        if let Some(image) = disk.load(identity.as_bytes()) {
            return Ok(image);
        }
        let image = compile()?;
        disk.store(identity.as_bytes(), &image);
        Ok(image)
    }

    fn compile(&self, kernel: &'static str, source: &str) -> Result<Vec<u8>, DeviceError> {
        let source = CString::new(source)
            .map_err(|_| DeviceError::Compile { kernel, log: "the source holds a zero".into() })?;
        let program = Program(
            result::create_program(&source, None).map_err(|error| failed("nvrtcCreateProgram", error))?,
        );
        // SAFETY: the program is alive.
        match unsafe { result::compile_program(program.0, &self.options()) } {
            Ok(()) => {}
            Err(NvrtcError(sys::nvrtcResult::NVRTC_ERROR_COMPILATION)) => {
                return Err(DeviceError::Compile { kernel, log: program.log() });
            }
            Err(error) => return Err(failed("nvrtcCompileProgram", error)),
        }
        program.image(self.is_binary)
    }
}

/// Destroyed when dropped.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it is alive until now.
        _ = unsafe { result::destroy_program(self.0) };
    }
}

impl Program {
    fn image(&self, is_binary: bool) -> Result<Vec<u8>, DeviceError> {
        let mut size_bytes = 0;
        // SAFETY: the program is alive and compiled; the calls write one number, and as many bytes as it says.
        unsafe {
            if is_binary {
                checked("nvrtcGetCUBINSize", sys::nvrtcGetCUBINSize(self.0, &mut size_bytes))?;
                let mut image = vec![0_u8; size_bytes];
                checked("nvrtcGetCUBIN", sys::nvrtcGetCUBIN(self.0, image.as_mut_ptr().cast::<c_char>()))?;
                Ok(image)
            } else {
                checked("nvrtcGetPTXSize", sys::nvrtcGetPTXSize(self.0, &mut size_bytes))?;
                let mut image = vec![0_u8; size_bytes];
                checked("nvrtcGetPTX", sys::nvrtcGetPTX(self.0, image.as_mut_ptr().cast::<c_char>()))?;
                Ok(image)
            }
        }
    }

    /// The first lines.
    fn log(&self) -> String {
        // SAFETY: the program is alive.
        let log = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        let log: Vec<u8> = log.into_iter().map(|byte| byte as u8).take_while(|byte| *byte != 0).collect();
        let log = String::from_utf8_lossy(&log);
        log.lines().take(LOG_LINE_COUNT_MAX).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_hal::Bounds;
    use std::{cell::Cell, env, fs};

    fn compiler(disk: Option<Disk>) -> Compiler {
        Compiler {
            version: (13, 0),
            architecture: "sm_90".into(),
            is_binary: true,
            disk,
            compiles: AtomicU64::new(0),
            compile_ns: AtomicU64::new(0),
        }
    }

    #[test]
    fn an_image_is_compiled_once_and_again_when_its_file_is_damaged() {
        let folder = env::temp_dir().join(format!("raddle-compile-{}", std::process::id()));
        let count = Cell::new(0);
        let image = || {
            let compile = || {
                count.set(count.get() + 1);
                Ok(b"image".to_vec())
            };
            assert_eq!(
                compiler(Some(Disk::at(folder.clone(), &Bounds::default()))).image_by("source", compile),
                Ok(b"image".to_vec())
            );
            count.get()
        };
        assert_eq!([image(), image()], [1, 1]);
        let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        fs::write(&file, "damaged").unwrap();
        assert_eq!([image(), image()], [2, 2]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_version_of_nvrtc_and_the_source_name_the_file() {
        let folder = env::temp_dir().join(format!("raddle-identity-{}", std::process::id()));
        let image = |compiler: Compiler, source: &str, made: &str| {
            compiler.image_by(source, || Ok(made.as_bytes().to_vec())).unwrap()
        };
        let disk = || Some(Disk::at(folder.clone(), &Bounds::default()));
        assert_eq!(image(compiler(disk()), "a", "1"), b"1");
        assert_eq!(image(compiler(disk()), "b", "2"), b"2");
        assert_eq!(image(Compiler { version: (13, 1), ..compiler(disk()) }, "a", "3"), b"3");
        assert_eq!(image(Compiler { architecture: "sm_80".into(), ..compiler(disk()) }, "a", "4"), b"4");
        assert_eq!(image(compiler(disk()), "a", "5"), b"1");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Runs where NVRTC is installed, GPU or not.
    #[test]
    fn a_refused_source_is_told_with_the_log() {
        if !is_present() {
            return;
        }
        let compiler = Compiler::new(90, None).unwrap();
        assert!(!compiler.image("good", "extern \"C\" __global__ void good() {}").unwrap().is_empty());
        let Err(DeviceError::Compile { kernel: "bad", log }) = compiler.image("bad", "not C") else {
            panic!("it is refused")
        };
        assert!(log.contains("error"), "{log}");
    }
}
