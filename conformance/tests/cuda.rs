//! All suites on the first GPU; where there is none, each test is ignored.
fn main() -> std::process::ExitCode {
    raddle_conformance::main(raddle_conformance::Backend::Cuda)
}
