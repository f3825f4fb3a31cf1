//! Compiles the wire contract in `proto/` with a pure Rust compiler, so that a
//! machine with only Rust and a C compiler can build the project.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);

    let mut compiler = protox::Compiler::new(["proto"])?;
    // Reflection serves the whole set, and proto comments become rustdoc.
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(["seriatim/v1/ingest.proto", "seriatim/v1/delivery.proto"])?;
    fs::write(out.join("seriatim_descriptor.bin"), compiler.encode_file_descriptor_set())?;

    tonic_prost_build::configure()
        .bytes(".seriatim.v1") // no copy out of the HTTP/2 frame
        .btree_map(".seriatim.v1") // stable order when attributes are written as JSON
        .codec_path("crate::grpc::codec::BoundedCodec") // looks before it decodes
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
