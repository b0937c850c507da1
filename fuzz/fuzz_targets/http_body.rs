#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| raddle_fuzz::http_body(bytes));
