//! Compresses a response body piece by piece with gzip, Brotli or Zstandard, as it is forwarded.

use std::io::{self, Write};

use brotli::enc::BrotliEncoderParams;
use brotli::enc::writer::CompressorWriter;
use flate2::write::GzEncoder;
use weir_model::Coding;

/// Compression levels that take about as much CPU time as reading the body from a server. Higher levels are for files
/// that are compressed once.
const GZIP_LEVEL: u32 = 4;
const BROTLI_QUALITY: i32 = 4;
const ZSTD_LEVEL: i32 = 3;
/// Window sizes as powers of two: 256 KiB. RFC 9659 requires clients of `zstd` to support at least 8 MiB.
const BROTLI_WINDOW_LOG2: i32 = 18;
const ZSTD_WINDOW_LOG2: u32 = 18;
/// Size of Brotli's output buffer, in bytes.
const BROTLI_BUFFER_BYTES: usize = 4096;

/// The encoder of one response.
pub(crate) enum Encoder {
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

impl Encoder {
    /// Creates an encoder.
    ///
    /// # Errors
    /// Fails if there is not enough memory.
    pub(crate) fn new(coding: Coding) -> io::Result<Self> {
        Ok(match coding {
            Coding::Gzip => Self::Gzip(Box::new(GzEncoder::new(
                Vec::new(),
                flate2::Compression::new(GZIP_LEVEL),
            ))),
            Coding::Brotli => {
                let params = BrotliEncoderParams {
                    quality: BROTLI_QUALITY,
                    lgwin: BROTLI_WINDOW_LOG2,
                    ..BrotliEncoderParams::default()
                };
                let writer =
                    CompressorWriter::with_params(Vec::new(), BROTLI_BUFFER_BYTES, &params);
                Self::Brotli(Box::new(writer))
            }
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.window_log(ZSTD_WINDOW_LOG2)?;
                Self::Zstd(Box::new(encoder))
            }
        })
    }

    /// Compresses `content`. If `flush` is true, the client can decode all of `content` without further input.
    ///
    /// # Errors
    /// Returns an error if the encoder fails. Its output is then unusable.
    pub(crate) fn write(&mut self, content: &[u8], flush: bool) -> io::Result<()> {
        let writer: &mut dyn Write = match self {
            Self::Gzip(encoder) => encoder,
            Self::Brotli(encoder) => encoder,
            Self::Zstd(encoder) => encoder,
        };
        writer.write_all(content)?;
        if flush { writer.flush() } else { Ok(()) }
    }

    /// Appends the output so far to `out`, as a chunk.
    pub(crate) fn take(&mut self, out: &mut Vec<u8>) {
        let output = match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        };
        write_chunk(output, out);
        output.clear();
    }

    /// Appends the remaining output and the end of the chunked body to `out`.
    ///
    /// # Errors
    /// Returns an error if the encoder fails. Its output is then unusable.
    pub(crate) fn finish(self, out: &mut Vec<u8>) -> io::Result<()> {
        let remaining = match self {
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Brotli(encoder) => encoder.into_inner(),
            Self::Zstd(encoder) => encoder.finish()?,
        };
        write_chunk(&remaining, out);
        out.extend_from_slice(b"0\r\n\r\n");
        Ok(())
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Gzip(_) => "Gzip",
            Self::Brotli(_) => "Brotli",
            Self::Zstd(_) => "Zstd",
        })
    }
}

fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    // An empty chunk would end the body.
    if !data.is_empty() {
        out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use weir_http::chunk::ChunkedParser;

    use super::*;

    fn decode_chunks(coded: &[u8]) -> Vec<u8> {
        let (mut chunks, mut content) = (ChunkedParser::new(), Vec::new());
        let used = chunks.scan(coded, &mut |data| content.extend_from_slice(data));
        assert!(used == Ok(coded.len()) && chunks.is_done());
        content
    }

    fn decode(coding: Coding, output: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(output).read_to_end(&mut out),
            Coding::Brotli => brotli::Decompressor::new(output, 4096).read_to_end(&mut out),
            Coding::Zstd => zstd::stream::read::Decoder::new(output)
                .expect("create decoder")
                .read_to_end(&mut out),
        }
        .expect("decode");
        out
    }

    #[test]
    fn decoded_output_equals_input_for_any_chunk_size() {
        let content: Vec<u8> = (0..60_000u32)
            .map(|index| (index / 7 % 251) as u8)
            .collect();
        for coding in Coding::ALL {
            for (chunk_size, flush) in [(1 << 20, false), (1_000, true), (7_001, false)] {
                let mut encoder = Encoder::new(coding).unwrap();
                let mut out = Vec::new();
                for piece in content.chunks(chunk_size) {
                    encoder.write(piece, flush).unwrap();
                    encoder.take(&mut out);
                }
                encoder.finish(&mut out).unwrap();
                let output = decode_chunks(&out);
                assert!(
                    output.len() < content.len() / 4,
                    "{coding:?}: {}",
                    output.len()
                );
                assert_eq!(decode(coding, &output), content, "{coding:?} {chunk_size}");
            }
            let mut out = Vec::new();
            Encoder::new(coding).unwrap().finish(&mut out).unwrap();
            assert_eq!(decode(coding, &decode_chunks(&out)), b"");
        }
    }

    #[test]
    fn flush_makes_all_input_decodable() {
        for coding in Coding::ALL {
            let mut encoder = Encoder::new(coding).unwrap();
            let mut out = Vec::new();
            encoder.write(b"now", true).unwrap();
            encoder.take(&mut out);
            let mut content = Vec::new();
            ChunkedParser::new()
                .scan(&out, &mut |data| content.extend_from_slice(data))
                .unwrap();
            let mut output = [0; 3];
            let read = match coding {
                Coding::Gzip => flate2::read::GzDecoder::new(&content[..]).read_exact(&mut output),
                Coding::Brotli => {
                    brotli::Decompressor::new(&content[..], 64).read_exact(&mut output)
                }
                Coding::Zstd => zstd::stream::read::Decoder::new(&content[..])
                    .unwrap()
                    .read_exact(&mut output),
            };
            assert!(read.is_ok() && &output == b"now", "{coding:?}");
        }
    }
}
