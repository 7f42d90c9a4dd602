//! Connect tokens, their private data, and challenge tokens, byte for byte as the reference writes and reads them.

use slipgate_netcode::crypto::aead::{NotAuthentic, nonce};
use slipgate_netcode::crypto::key::{Key, KeyRing};
use slipgate_netcode::crypto::sealed_token::{PrivateContext, open_challenge, open_private, seal_challenge};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::time::UnixSeconds;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::issue::seal;
use slipgate_netcode::token::redeem::{Redeemed, redeem};
use slipgate_netcode::wire::cursor::{Reader, Writer};
use slipgate_netcode::wire::packet::Request;
use slipgate_netcode::wire::token::{PrivateLayout, PublicLayout, Servers, TokenLayoutError};
use slipgate_netcode::wire::{
    CHALLENGE_TOKEN_BYTES, CHALLENGE_TOKEN_PLAIN_BYTES, CONNECT_TOKEN_BYTES, PRIVATE_TOKEN_BYTES,
    PRIVATE_TOKEN_PLAIN_BYTES, UserData,
};
use slipgate_tests::vectors::{Case, Vectors};

const PRIVATE: &str = "netcode_private_connect_token.json";
const PUBLIC: &str = "netcode_connect_token.json";
const CHALLENGE: &str = "netcode_challenge_token.json";

// Private data ------------------------------------------------------------------------------------------------------

/// All fields of a case that are in the private data.
struct PrivateFields {
    client_id: u64,
    timeout_seconds: i32,
    servers: Servers,
    client_to_server: [u8; 32],
    server_to_client: [u8; 32],
    user_data: UserData,
}

impl PrivateFields {
    fn layout(&self) -> PrivateLayout<'_> {
        PrivateLayout {
            client_id: self.client_id.into(),
            timeout_seconds: self.timeout_seconds,
            servers: self.servers.clone(),
            client_to_server: &self.client_to_server,
            server_to_client: &self.server_to_client,
            user_data: &self.user_data,
            minted: None,
        }
    }

    fn assert_is(&self, redeemed: &Redeemed, case: &Case<'_>) {
        assert_eq!(redeemed.client_id.0, self.client_id, "{case}");
        assert_eq!(redeemed.timeout_seconds, self.timeout_seconds, "{case}");
        assert_eq!(redeemed.servers, self.servers, "{case}");
        assert_eq!(redeemed.client_to_server.expose(), &self.client_to_server, "{case}");
        assert_eq!(redeemed.server_to_client.expose(), &self.server_to_client, "{case}");
        assert_eq!(redeemed.user_data, self.user_data, "{case}");
        assert_eq!(redeemed.minted, None, "{case}: the reference writes no mint time");
    }
}

/// The associated data of the private data, and the sealed bytes.
struct Sealed {
    protocol_id: u64,
    expires: UnixSeconds,
    nonce: [u8; 24],
    key: Key,
    bytes: [u8; PRIVATE_TOKEN_BYTES],
}

impl Sealed {
    fn of(case: &Case<'_>, bytes_field: &str) -> Self {
        Self {
            protocol_id: case.u64("protocol_id_u64"),
            expires: UnixSeconds(case.u64("expire_timestamp_u64")),
            nonce: case.array("nonce_hex"),
            key: Key::from(case.array("private_key_hex")),
            bytes: case.array(bytes_field),
        }
    }

    fn context(&self) -> PrivateContext<'_> {
        PrivateContext { protocol_id: self.protocol_id, expires: self.expires, nonce: &self.nonce }
    }

    fn open(&self) -> Result<[u8; PRIVATE_TOKEN_PLAIN_BYTES], NotAuthentic> {
        let mut bytes = self.bytes;
        open_private(&self.key, &self.context(), &mut bytes).map(|plain| *plain)
    }

    fn redeem(&self) -> Result<Redeemed, Discard> {
        let request = Request { expires: self.expires, nonce: &self.nonce, sealed: &self.bytes };
        redeem(&request, self.protocol_id, &KeyRing::from(self.key.clone()))
    }
}

fn servers(case: &Case<'_>, field: &str) -> Servers {
    Servers::new(&case.addresses(field)).unwrap_or_else(|| panic!("{case}: 1 to 32 servers"))
}

#[test]
fn private_token_data_matches_the_reference() {
    for case in Vectors::load(PRIVATE).cases("valid_cases", 10) {
        let fields = PrivateFields {
            client_id: case.u64("client_id_u64"),
            timeout_seconds: case.i32("timeout_seconds_i32"),
            servers: servers(&case, "server_addresses"),
            client_to_server: case.array("client_to_server_key_hex"),
            server_to_client: case.array("server_to_client_key_hex"),
            user_data: case.array("user_data_hex"),
        };
        assert_eq!(fields.servers.len() as u32, case.u32("num_server_addresses_u32"), "{case}");
        let sealed = Sealed::of(&case, "encrypted_hex");

        let mut plain = [0xaa; PRIVATE_TOKEN_PLAIN_BYTES];
        fields.layout().emit(&mut plain);
        assert_eq!(hex::encode(plain), case.text("plaintext_hex"), "{case}");
        let ours = seal(&fields.layout(), &sealed.key, &sealed.context());
        assert_eq!(hex::encode(ours), case.text("encrypted_hex"), "{case}");

        assert_eq!(sealed.open(), Ok(plain), "{case}");
        let redeemed = sealed.redeem().unwrap_or_else(|discard| panic!("{case}: {discard}"));
        fields.assert_is(&redeemed, &case);
        assert_eq!(redeemed.expires, sealed.expires, "{case}");
    }
}

#[test]
fn invalid_private_token_data_is_refused_with_a_reason() {
    const MALFORMED: &[(&str, TokenLayoutError)] = &[
        ("address count below 1", TokenLayoutError::ServerCount),
        ("address count above 32", TokenLayoutError::ServerCount),
        ("address count above 32 (sign bit of a 32-bit integer)", TokenLayoutError::ServerCount),
        ("address type not 1 or 2", TokenLayoutError::AddressType),
    ];
    for case in Vectors::load(PRIVATE).cases("invalid_cases", 20) {
        assert_eq!(case.text("expected"), "reject", "{case}");
        let sealed = Sealed::of(&case, "encrypted_hex");
        let discard = sealed.redeem().map(|_| ());
        match case.text("rejected_by") {
            "decrypt" => {
                assert_eq!(sealed.open(), Err(NotAuthentic), "{case}");
                assert_eq!(discard, Err(Discard::TokenNotAuthentic), "{case}");
            }
            "parse" => {
                let plain = case.array("plaintext_hex");
                assert_eq!(sealed.open(), Ok(plain), "{case}");
                let error = PrivateLayout::parse(&plain).map(|_| ());
                assert_eq!(error, Err(reason(&case, MALFORMED)), "{case}");
                assert_eq!(discard, Err(Discard::TokenMalformed), "{case}");
            }
            other => panic!("{case}: rejected by {other}"),
        }
    }
}

#[test]
fn private_data_tolerated_by_the_reference_is_accepted() {
    let vectors = Vectors::load(PRIVATE);
    for case in vectors.cases("tolerated_cases", 1) {
        assert_eq!(case.text("expected"), "accept", "{case}");
        let sealed = Sealed::of(&case, "encrypted_hex");
        assert_eq!(sealed.open(), Ok(case.array("plaintext_hex")), "{case}");
        if let Some(redeemed) = vectors.tolerate(&case, sealed.redeem()) {
            assert_eq!(redeemed.client_id.0, case.u64("client_id_u64"), "{case}");
            assert_eq!(redeemed.minted, None, "{case}: noise in the padding is not a mint time");
        }
    }
    vectors.all_refusals_were_needed();
}

fn reason(case: &Case<'_>, table: &[(&str, TokenLayoutError)]) -> TokenLayoutError {
    let reason = case.text("reason");
    let found = table.iter().find(|(name, _)| *name == reason).map(|(_, error)| *error);
    found.unwrap_or_else(|| panic!("{case}: no error of ours corresponds to \"{reason}\""))
}

// Public token -----------------------------------------------------------------------------------------------------

#[test]
fn connect_token_encoding_matches_the_reference() {
    for case in Vectors::load(PUBLIC).cases("valid_cases", 10) {
        let (nonce, sealed) = (case.array("nonce_hex"), case.array("private_encrypted_hex"));
        let (client_to_server, server_to_client) =
            (case.array("client_to_server_key_hex"), case.array("server_to_client_key_hex"));
        let layout = PublicLayout {
            protocol_id: case.u64("protocol_id_u64"),
            created: UnixSeconds(case.u64("create_timestamp_u64")),
            expires: UnixSeconds(case.u64("expire_timestamp_u64")),
            nonce: &nonce,
            sealed: &sealed,
            timeout_seconds: case.i32("timeout_seconds_i32"),
            servers: servers(&case, "public_server_addresses"),
            client_to_server: &client_to_server,
            server_to_client: &server_to_client,
        };
        let mut token = [0xaa; CONNECT_TOKEN_BYTES];
        layout.emit(&mut token);
        assert_eq!(hex::encode(token), case.text("token_hex"), "{case}");
    }
}

#[test]
fn connect_token_decodes_to_reference_fields() {
    for case in Vectors::load(PUBLIC).cases("valid_cases", 10) {
        let token = ConnectToken::from_bytes(&case.bytes("token_hex"));
        let token = token.unwrap_or_else(|error| panic!("{case}: {error}"));
        let facts = token.facts();
        assert_eq!(facts.protocol_id, case.u64("protocol_id_u64"), "{case}");
        assert_eq!(facts.created, UnixSeconds(case.u64("create_timestamp_u64")), "{case}");
        assert_eq!(facts.expires, UnixSeconds(case.u64("expire_timestamp_u64")), "{case}");
        assert_eq!(facts.timeout_seconds, case.i32("timeout_seconds_i32"), "{case}");
        assert_eq!(facts.servers, servers(&case, "public_server_addresses"), "{case}");
        assert_eq!(facts.servers.len() as u32, case.u32("num_server_addresses_u32"), "{case}");
        assert_eq!(*token.request().nonce, case.array("nonce_hex"), "{case}");
        assert_eq!(*token.request().sealed, case.array("private_encrypted_hex"), "{case}");
        assert_eq!(token.keys().client_to_server.expose(), &case.array("client_to_server_key_hex"), "{case}");
        assert_eq!(token.keys().server_to_client.expose(), &case.array("server_to_client_key_hex"), "{case}");
        assert_eq!(hex::encode(token.as_bytes()), case.text("token_hex"), "{case}");
    }
}

#[test]
fn connect_token_private_data_decodes_to_reference_fields() {
    for case in Vectors::load(PUBLIC).cases("valid_cases", 10) {
        let fields = PrivateFields {
            client_id: case.u64("private_client_id_u64"),
            timeout_seconds: case.i32("timeout_seconds_i32"),
            servers: servers(&case, "private_server_addresses"),
            client_to_server: case.array("client_to_server_key_hex"),
            server_to_client: case.array("server_to_client_key_hex"),
            user_data: case.array("private_user_data_hex"),
        };
        let redeemed = Sealed::of(&case, "private_encrypted_hex").redeem();
        fields.assert_is(&redeemed.unwrap_or_else(|discard| panic!("{case}: {discard}")), &case);
    }
}

#[test]
fn invalid_connect_token_is_refused_with_a_reason() {
    const WRONG: &[(&str, TokenLayoutError)] = &[
        ("length is not 2048", TokenLayoutError::Length),
        ("version string differs", TokenLayoutError::Version),
        ("create timestamp later than expire timestamp", TokenLayoutError::CreatedAfterExpiry),
        ("address count below 1", TokenLayoutError::ServerCount),
        ("address count above 32", TokenLayoutError::ServerCount),
        ("address type not 1 or 2", TokenLayoutError::AddressType),
    ];
    for case in Vectors::load(PUBLIC).cases("invalid_cases", 15) {
        assert_eq!(case.text("expected"), "reject", "{case}");
        let bytes = case.bytes("token_hex");
        assert_eq!(bytes.len() as u32, case.u32("token_bytes_u32"), "{case}");
        assert_eq!(ConnectToken::from_bytes(&bytes).map(|_| ()), Err(reason(&case, WRONG)), "{case}");
    }
}

#[test]
fn connect_tokens_tolerated_by_the_reference_are_accepted() {
    let vectors = Vectors::load(PUBLIC);
    for case in vectors.cases("tolerated_cases", 3) {
        assert_eq!(case.text("expected"), "accept", "{case}");
        let bytes = case.bytes("token_hex");
        if let Some(token) = vectors.tolerate(&case, ConnectToken::from_bytes(&bytes)) {
            assert_eq!(token.as_bytes()[..], bytes[..], "{case}");
        }
    }
    vectors.all_refusals_were_needed();
}

// Challenge token --------------------------------------------------------------------------------------------------

#[test]
fn challenge_token_matches_the_reference() {
    for case in Vectors::load(CHALLENGE).cases("valid_cases", 9) {
        let key = Key::from(case.array("challenge_key_hex"));
        let sequence = case.u64("sequence_u64");
        let (client_id, user_data): (u64, UserData) = (case.u64("client_id_u64"), case.array("user_data_hex"));
        assert_eq!(nonce(sequence), case.array("nonce_hex"), "{case}");
        assert_eq!(case.text("associated_data_hex"), "", "{case}");

        let mut token = [0; CHALLENGE_TOKEN_BYTES];
        let mut writer = Writer::new(&mut token);
        writer.write::<u64>(client_id);
        writer.bytes(&user_data);
        let plain: [u8; CHALLENGE_TOKEN_PLAIN_BYTES] = case.array("plaintext_hex");
        assert_eq!(token.first_chunk(), Some(&plain), "{case}");
        seal_challenge(&key, sequence, &mut token);
        assert_eq!(hex::encode(token), case.text("encrypted_hex"), "{case}");

        let opened = open_challenge(&key, sequence, &mut token).map(|plain| *plain);
        assert_eq!(opened, Ok(plain), "{case}");
        let mut reader = Reader::new(&plain);
        assert_eq!((reader.read::<u64>(), reader.array()), (Some(client_id), Some(&user_data)), "{case}");
    }
}

#[test]
fn altered_challenge_token_does_not_open() {
    for case in Vectors::load(CHALLENGE).cases("invalid_cases", 11) {
        assert_eq!(case.text("expected"), "reject", "{case}");
        let key = Key::from(case.array("challenge_key_hex"));
        let mut token = case.array("encrypted_hex");
        let opened = open_challenge(&key, case.u64("sequence_u64"), &mut token).map(|_| ());
        assert_eq!(opened, Err(NotAuthentic), "{case}");
    }
}
