package archive

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

const nonceBytes = 12

// tagBytes is what AES-GCM adds.
const tagBytes = 16

// sealer encrypts one kind of content of one archive.
type sealer struct {
	aead cipher.AEAD
	// nonceKey makes nonces of what is encrypted: the same chunk packed again after a kill gives the same bytes, and another chunk another nonce, also where an
	// attempt is packed again by another version of the compressor.
	nonceKey []byte
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// newSealer derives the keys of a purpose from an archive's own key.
func newSealer(dataKey []byte, purpose string) (*sealer, error) {
	derived, err := hkdf.Key(sha256.New, dataKey, nil, "agent-sandbox archive 1 "+purpose, 2*keyBytes)
	if err != nil {
		return nil, err
	}
	aead, err := newAEAD(derived[:keyBytes])
	return &sealer{aead: aead, nonceKey: derived[keyBytes:]}, err
}

func (s *sealer) seal(plain, about []byte) []byte {
	mac := hmac.New(sha256.New, s.nonceKey)
	mac.Write(about)
	mac.Write(plain)
	nonce := mac.Sum(nil)[:nonceBytes]
	sealed := make([]byte, nonceBytes, nonceBytes+len(plain)+tagBytes)
	copy(sealed, nonce)
	return s.aead.Seal(sealed, nonce, plain, about)
}

func (s *sealer) open(sealed, about []byte) ([]byte, error) { return openWith(s.aead, sealed, about) }

var errSealed = errors.New("it is not what was written, or not with this key")

func openWith(aead cipher.AEAD, sealed, about []byte) ([]byte, error) {
	if len(sealed) < nonceBytes+tagBytes {
		return nil, errSealed
	}
	plain, err := aead.Open(nil, sealed[:nonceBytes], sealed[nonceBytes:], about)
	if err != nil {
		return nil, errSealed
	}
	return plain, nil
}

// wrap encrypts an archive's key with one of the engine's. The id of both is part of it: neither can be exchanged.
func wrap(by Key, archive string, dataKey []byte) ([]byte, error) {
	aead, err := newAEAD(by.Key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce)
	return aead.Seal(nonce, nonce, dataKey, aboutWrap(by.ID, archive)), nil
}

func unwrap(by Key, archive string, wrapped []byte) ([]byte, error) {
	aead, err := newAEAD(by.Key)
	if err != nil {
		return nil, err
	}
	return openWith(aead, wrapped, aboutWrap(by.ID, archive))
}

func aboutWrap(key, archive string) []byte { return []byte("wrap\x00" + key + "\x00" + archive) }

// aboutChunk is what a chunk is besides its content: of which archive, the how manieth, and whether it is the last.
func aboutChunk(archive string, number int64, isLast bool) []byte {
	about := binary.BigEndian.AppendUint64([]byte("chunk\x00"+archive+"\x00"), uint64(number))
	if isLast {
		return append(about, 1)
	}
	return append(about, 0)
}
