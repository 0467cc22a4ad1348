//! Conversions between the number types that scoring needs, in one place.

/// A weight of a settings file as the type that scores are computed in.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "rounding to the nearest f32 is what is wanted"
)]
pub(super) fn narrow(x: f64) -> f32 {
    x as f32
}

/// A count as a float; counts here stay far below 2^24, where `f32` is exact.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "exact for every count that can occur"
)]
pub(super) fn count(n: usize) -> f32 {
    n as f32
}

/// A number of a posting or document as an index.
pub(super) fn index(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// An index as the number that postings store; catalogs are bounded far below 2^32.
pub(super) fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Steps of a stored impact: 16 bits keep an impact to 1.5e-5, which is finer than scores are compared.
pub(super) const IMPACT_STEPS: f32 = 65_535.0;

/// A value from 0 to 1 in 16 bits.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is clamped to the range of u16 first"
)]
pub(super) fn quantize(x: f32) -> u16 {
    (x.clamp(0.0, 1.0) * IMPACT_STEPS).round() as u16
}
