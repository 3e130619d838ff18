package legacy

// splitError is what a command line lacks, in the words clients may have seen.
type splitError string

const (
	errNoQuotation splitError = "No closing quotation"
	errNoEscaped   splitError = "No escaped character"
)

func (e splitError) Error() string { return string(e) }

// Split cuts a command line into words as a POSIX shell would, without any expansion.
func Split(line string) ([]string, error) {
	s := splitter{}
	for i := 0; i < len(line); i++ {
		s.next(line[i])
	}
	return s.end()
}

// splitter is the state between two characters.
type splitter struct {
	words   []string
	word    []byte
	inWord  bool
	quote   byte
	escaped bool
}

func (s *splitter) next(c byte) {
	switch {
	case s.escaped:
		s.escaped = false
		// Inside double quotes a backslash stays unless it protects a quote or itself.
		if s.quote == '"' && c != '"' && c != '\\' {
			s.word = append(s.word, '\\')
		}
		s.word = append(s.word, c)
	case s.quote == '\'' && c != '\'', s.quote == '"' && c != '"' && c != '\\':
		s.word = append(s.word, c)
	case s.quote != 0 && c == s.quote:
		s.quote = 0
	case c == '\\':
		s.escaped, s.inWord = true, true
	case c == '\'' || c == '"':
		s.quote, s.inWord = c, true
	case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		s.finishWord()
	default:
		s.word, s.inWord = append(s.word, c), true
	}
}

func (s *splitter) finishWord() {
	if s.inWord {
		s.words = append(s.words, string(s.word))
	}
	s.word, s.inWord = nil, false
}

func (s *splitter) end() ([]string, error) {
	if s.escaped {
		return nil, errNoEscaped
	}
	if s.quote != 0 {
		return nil, errNoQuotation
	}
	s.finishWord()
	return s.words, nil
}
