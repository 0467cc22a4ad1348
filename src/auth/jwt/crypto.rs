//! Signatures, checked by ring: TLS brings it anyway, and one library of cryptography is enough to keep up with.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, Result};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature as ring_sig;

use crate::auth::AuthRefusal;

/// docent signs nothing and makes no keys: only verifying is there.
static RING: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes ring the provider of the process. A second time changes nothing.
pub(super) fn install() {
    RING.install_default().ok();
}

#[expect(
    clippy::unnecessary_wraps,
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is the crate's"
)]
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is the crate's")]
fn no_signer(_algorithm: &Algorithm, _key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl RingVerifier {
    fn rsa(&self, message: &[u8], signed: &[u8]) -> Option<()> {
        // From 2,048 bits on: ring takes no shorter ones.
        let parameters = match self.algorithm {
            Algorithm::RS256 => &ring_sig::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::RS384 => &ring_sig::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::RS512 => &ring_sig::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::PS256 => &ring_sig::RSA_PSS_2048_8192_SHA256,
            Algorithm::PS384 => &ring_sig::RSA_PSS_2048_8192_SHA384,
            Algorithm::PS512 => &ring_sig::RSA_PSS_2048_8192_SHA512,
            _ => return None,
        };
        let DecodingKeyKind::RsaModulusExponent { n, e } = self.key.kind() else { return None };
        ring_sig::RsaPublicKeyComponents { n, e }.verify(parameters, message, signed).ok()
    }

    fn curve(&self, message: &[u8], signed: &[u8]) -> Option<()> {
        let algorithm: &dyn ring_sig::VerificationAlgorithm = match self.algorithm {
            Algorithm::ES256 => &ring_sig::ECDSA_P256_SHA256_FIXED,
            Algorithm::ES384 => &ring_sig::ECDSA_P384_SHA384_FIXED,
            Algorithm::EdDSA => &ring_sig::ED25519,
            _ => return None,
        };
        let key = self.key.try_get_as_bytes().ok()?;
        ring_sig::UnparsedPublicKey::new(algorithm, key).verify(message, signed).ok()
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> std::result::Result<(), signature::Error> {
        // A key of one family never checks a signature of another.
        if self.key.family() != self.algorithm.family() {
            return Err(signature::Error::new());
        }
        self.rsa(message, signed).or_else(|| self.curve(message, signed)).ok_or_else(signature::Error::new)
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// What a token with a wrong signature is told.
pub(super) const BAD_SIGNATURE: &str = "its signature is not valid";

/// Why a token is refused, without anything of the token.
pub(super) fn refusal(error: &Error) -> AuthRefusal {
    AuthRefusal::Token(match error.kind() {
        ErrorKind::InvalidSignature => BAD_SIGNATURE,
        ErrorKind::InvalidIssuer => "it is from another issuer",
        ErrorKind::InvalidAudience => "it is for another audience",
        ErrorKind::MissingRequiredClaim(name) => match name.as_str() {
            "exp" => "it has no `exp`",
            "aud" => "it has no `aud`",
            _ => "it has no `iss`",
        },
        _ => "it is malformed",
    })
}
