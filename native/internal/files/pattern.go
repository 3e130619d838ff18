package files

import (
	"path"
	"slices"
	"strings"
)

// alternativesMax bounds what {a,b}{c,d}... may expand to.
const alternativesMax = 256

// wildMax bounds the "**" in one pattern: matching takes time to the power of it.
const wildMax = 4

// pattern is a compiled glob: alternatives of components, where "**" stands for any number of directories.
type pattern struct{ alternatives [][]string }

func compilePattern(text string) (*pattern, error) {
	compiled := &pattern{}
	expanded, ok := expandBraces(strings.TrimPrefix(text, "/"))
	if !ok || text == "" {
		return nil, ErrBadPattern
	}
	for _, one := range expanded {
		// Two in a row mean the same as one.
		parts := slices.CompactFunc(strings.Split(path.Clean(one), "/"), func(a, b string) bool { return a == "**" && b == "**" })
		wild := 0
		for _, part := range parts {
			if _, err := path.Match(part, ""); err != nil || part == ".." {
				return nil, ErrBadPattern
			}
			if part == "**" {
				wild++
			}
		}
		if wild > wildMax {
			return nil, ErrBadPattern
		}
		compiled.alternatives = append(compiled.alternatives, parts)
	}
	return compiled, nil
}

// expandBraces turns "a{b,c}" into "ab" and "ac"; braces may nest.
func expandBraces(text string) ([]string, bool) {
	open := strings.IndexByte(text, '{')
	if open < 0 {
		return []string{text}, true
	}
	depth, start := 0, open+1
	var choices []string
	for i := open; i < len(text); i++ {
		switch {
		case text[i] == '{':
			depth++
		case text[i] == ',' && depth == 1:
			choices, start = append(choices, text[start:i]), i+1
		case text[i] == '}':
			if depth--; depth == 0 {
				return joinChoices(text[:open], append(choices, text[start:i]), text[i+1:])
			}
		}
	}
	return nil, false
}

func joinChoices(before string, choices []string, after string) ([]string, bool) {
	var all []string
	for _, choice := range choices {
		expanded, ok := expandBraces(choice + after)
		if !ok || len(all)+len(expanded) > alternativesMax {
			return nil, false
		}
		for _, one := range expanded {
			all = append(all, before+one)
		}
	}
	return all, true
}

// match says whether a relative path matches, and whether something below it could.
func (p *pattern) match(relative string) (full, prefix bool) {
	parts := strings.Split(relative, "/")
	for _, alternative := range p.alternatives {
		f, p := matchParts(alternative, parts)
		full, prefix = full || f, prefix || p
	}
	return full, prefix
}

func matchParts(pattern, parts []string) (full, prefix bool) {
	if len(parts) == 0 {
		full = true
		for _, part := range pattern {
			full = full && part == "**"
		}
		return full, len(pattern) > 0
	}
	if len(pattern) == 0 {
		return false, false
	}
	if pattern[0] == "**" {
		f1, p1 := matchParts(pattern[1:], parts)
		f2, p2 := matchParts(pattern, parts[1:])
		return f1 || f2, p1 || p2
	}
	if ok, _ := path.Match(pattern[0], parts[0]); !ok {
		return false, false
	}
	return matchParts(pattern[1:], parts[1:])
}
